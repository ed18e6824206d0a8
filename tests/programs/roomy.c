// roomy.so: a plug-in with large zeroed data. 96 MiB.
char large[96 << 20];
