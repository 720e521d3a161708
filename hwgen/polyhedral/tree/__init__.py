"""Loop nests as a tree of loops and blocks: the state that scheduling primitives edit."""
