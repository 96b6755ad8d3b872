#include "train/commands/commands.h"

namespace tapeformer {

const std::vector<Command>& commands() {
  static const auto* const list = new std::vector<Command>{
      {"bench", "NAME", "benchmarks; \"bench list\" names them", run_bench},
      {"data", "list|fetch|verify|prepare [NAME]", "data sets: where they are, download, checksums",
       run_data},
      {"info", "", "version, compiler, BLAS and threads, devices, memory", run_info},
      {"train", "CONFIG", "trains a model from a config file, or continues a run", run_train},
  };
  return *list;
}

}  // namespace tapeformer
