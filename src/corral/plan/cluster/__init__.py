"""corral plan cluster: the parts to build a cluster from."""
