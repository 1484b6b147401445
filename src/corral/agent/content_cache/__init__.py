"""Cache of content on a node: files by their SHA-256, and trees of them by manifests.
Models are one use of it."""
