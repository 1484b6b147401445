"""Files that attempts wrote into their work folders: listing them, sending them, and
keeping them for a while."""
