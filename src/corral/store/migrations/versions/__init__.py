"""One file a step of the schema, in order. None is ever edited once released."""
