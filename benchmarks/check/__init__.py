"""``make bench-check``: instruction counts of the calls that users make, against baselines.

Times differ from run to run and from machine to machine; instructions hardly do. Valgrind's
callgrind counts those of the calling thread, so neither other programs nor the store's own threads
change a count.

``paths`` lists what is counted, ``program`` counts it in one process under valgrind, ``callgrind``
starts that process and reads its answers, ``baselines`` stores them by environment, ``comparing``
judges them, and ``__main__`` is the command.
"""
