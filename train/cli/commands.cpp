#include "train/cli/commands.h"

namespace tapeformer {

const std::vector<Command>& commands() {
  static const auto* const list = new std::vector<Command>{
      {"train", "CONFIG", "trains a model from a config file, or continues a run", run_train},
      {"eval", "RUN", "bits/dim, accuracy or phone error rate of a run or checkpoint", run_eval},
      {"generate", "RUN", "draws images and reports images/sec", run_generate},
      {"complete", "RUN", "completes the first part of test images", run_complete},
      {"transcribe", "RUN FILE...", "phones of audio files", run_transcribe},
      {"bench", "NAME", "benchmarks; \"bench list\" names them", run_bench},
      {"reproduce", "NAME", "runs a table or a figure of a paper; \"reproduce list\" names them",
       run_reproduce},
      {"data", "list|fetch|verify|prepare [NAME]", "data sets: where they are, download, checksums",
       run_data},
      {"info", "", "version, compiler, BLAS and threads, devices, memory", run_info},
  };
  return *list;
}

}  // namespace tapeformer
