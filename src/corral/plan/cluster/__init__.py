"""corral plan cluster: what a cluster is built of."""
