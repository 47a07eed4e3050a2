// `braid`: one binary for every role and tool.
#include "cli/run_main.h"

int main(int argc, char** argv) { return braid::run_main(argc, argv); }
