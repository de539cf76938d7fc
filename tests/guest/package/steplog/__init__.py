"""A package of somebody else, which adds an entry to each door of Streamscope. `docs/doors.md` shows its files."""
