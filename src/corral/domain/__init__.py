"""The domain model of Corral: values that are checked when they are made. It uses only
the standard library, and neither I/O nor a clock."""
