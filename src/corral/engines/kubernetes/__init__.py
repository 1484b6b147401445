"""The Kubernetes engine: an indexed Job for each attempt, on nodes that Corral has
chosen."""
