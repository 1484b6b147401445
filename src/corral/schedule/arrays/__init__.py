"""The cluster as arrays, shared by both schedulers and by replays."""
