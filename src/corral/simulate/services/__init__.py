"""Services in a simulated world: users who make and change them, replicas that become
ready or do not, and a gateway with requests under way."""
