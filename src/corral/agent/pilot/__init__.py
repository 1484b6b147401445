"""The agent of one attempt (the pilot), which a batch step or a pod brings to a node of
a batch system or of Kubernetes."""
