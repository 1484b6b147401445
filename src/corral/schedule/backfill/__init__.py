"""Future free capacity, and the starts that are promised on it."""
