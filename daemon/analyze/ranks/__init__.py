"""What the ranks of a job do side by side: which of them works, which waits for another. Judges nothing."""
