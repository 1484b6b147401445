"""How long jobs run, as ended jobs show."""
