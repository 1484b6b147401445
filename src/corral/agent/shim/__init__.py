"""The shim: parent of one attempt's ranks on a node. Standard library only; one
thread."""
