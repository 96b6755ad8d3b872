#include "train/cli/run.h"

int main(int argc, char** argv) {
  return tapeformer::cli::run(argc, argv);
}
