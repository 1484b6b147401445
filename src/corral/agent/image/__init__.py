"""Images: fetched and unpacked by the tools that the node has, entered by the shim
itself."""
