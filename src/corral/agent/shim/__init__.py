"""The shim: the parent process of one attempt's ranks on a node. It uses the standard
library only, and one thread."""
