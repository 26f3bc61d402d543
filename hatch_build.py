"""Turn README's relative links into addresses: an index shows README without the repository's other files."""

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface


class ReadmeWithAddresses(MetadataHookInterface):
    """Set `readme`, with links to the site's pages, and to pictures and other files of the version's tag."""

    def update(self, metadata: dict[str, Any]) -> None:
        urls, text = metadata["urls"], Path(self.root, "README.md").read_text(encoding="utf-8")
        text = re.sub(r"(!\[[^]]*\]\()(?!https?://)", rf"\1{urls['Source']}/raw/v{metadata['version']}/", text)
        text = re.sub(r"\]\(docs/([\w/-]+)\.md", rf"]({urls['Documentation']}/\1.html", text)
        text = re.sub(r"\]\((?!https?://|#)", f"]({urls['Source']}/blob/v{metadata['version']}/", text)
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
