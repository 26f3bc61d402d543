"""Turn finished values into text: terminal, messages, HTML, JSON, CSV, charts."""
