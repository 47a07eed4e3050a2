// A shared library that is no op library.
extern "C" int nothing() { return 0; }
