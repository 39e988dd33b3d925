"""Maps over tables: one lean agent for each row and judge, and a frame of their answers."""
