"""The call tree as an icicle: its forms, its layout in cells, the walk and the search through it. Knows no colors."""
