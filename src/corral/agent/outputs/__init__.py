"""Files that attempts wrote into their work folders: listed, sent, and kept for a
while."""
