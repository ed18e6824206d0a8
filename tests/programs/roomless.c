// A library with much data that can't be loaded at once: it calls what nobody has.
extern void roomless_needs(void);
__attribute__((visibility("default"))) char roomless_data[30 << 20];
__attribute__((visibility("default"))) void roomless_calls(void) { roomless_needs(); }
