"""Random chips with workloads for them: what is drawn, what must hold, and campaigns of both."""
