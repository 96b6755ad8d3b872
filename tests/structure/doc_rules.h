// Checks of the rules of the documentation: links point to existing files, and quoted code occurs in the file
// that the quotation names.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "tests/structure/source_rules.h"

namespace tapeformer::test {

// Returns the Markdown files at the root and in docs, configs, tests and scripts.
std::vector<SourceFile> read_documents(const std::filesystem::path& root);

// Each function below finds problems in a document and returns one line for each problem, which begins with
// "PATH:LINE: ".

// Finds relative links to missing files.
std::vector<std::string> link_problems(const SourceFile& document, const std::filesystem::path& root);

// Finds code blocks with wrong quotations. A code block that begins with "```language PATH" quotes the file
// PATH. Lines that contain only "…", "// …" or "# …" divide the block into parts. Each part must occur in the
// file. White space is ignored.
std::vector<std::string> quotation_problems(const SourceFile& document, const std::filesystem::path& root);

}  // namespace tapeformer::test
