// A library with much data, which opening.c loads.
__attribute__((visibility("default"))) char roomy_data[40 << 20];
