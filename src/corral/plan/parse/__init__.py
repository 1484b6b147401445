"""Models, links, networks and precisions as people write them."""
