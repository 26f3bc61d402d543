"""Turn finished values into text: terminal, messages, JSON, CSV, Markdown, and what HTML pages share."""
