// What the files of another program say about a model and what the program does not need. A run keeps it in
// source.json and chat_template.jinja, and exports write it again.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "core/system/folder.h"

namespace tapeformer {

struct SourceFacts {
  int64_t context_length = 0;                    // longest text of the model in tokens; 0: unknown
  int64_t start_token = -1, padding_token = -1;  // -1: unknown
  std::string chat_template = {};                // Jinja template of conversations; empty: none
};

// Writes the facts that are known to a run directory. Throws FileError.
void write_source_facts(const Folder& run, const SourceFacts& facts);

// Returns the facts in the run directory of a checkpoint; without files, they are unknown. Throws
// CheckpointError if a file is damaged.
SourceFacts read_source_facts(const std::filesystem::path& checkpoint);

}  // namespace tapeformer
