"""Code is compiled once for each content of its source."""

from kept import compiled_once as compiled_once
