#include "tests/structure/doc_rules.h"

#include <algorithm>
#include <cctype>
#include <sstream>

#include "tests/support/temp_dir.h"

namespace tapeformer::test {
namespace {

namespace fs = std::filesystem;

std::string without_space(const std::string& text) {
  std::string result;
  std::copy_if(text.begin(), text.end(), std::back_inserter(result),
               [](unsigned char c) { return !std::isspace(c); });
  return result;
}

std::string trimmed(const std::string& line) {
  const size_t begin = line.find_first_not_of(' ');
  return begin == std::string::npos ? "" : line.substr(begin, line.find_last_not_of(' ') + 1 - begin);
}

// A code block of a Markdown file. `line` is the number of the line that begins the block with "```", and
// `info` is the text after "```" in this line.
struct CodeBlock {
  int line = 0;
  std::string info;
  std::vector<std::string> lines;
};

std::vector<CodeBlock> code_blocks(const std::string& text) {
  std::vector<CodeBlock> blocks;
  std::istringstream in(text);
  bool open = false;
  int number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    const std::string content = trimmed(line);
    if (content.starts_with("```")) {
      if (!open) blocks.push_back({number, content.substr(3), {}});
      open = !open;
    } else if (open) {
      blocks.back().lines.push_back(content);
    }
  }
  return blocks;
}

std::vector<std::string> parts_of(const CodeBlock& block) {
  std::vector<std::string> parts(1);
  for (const std::string& line : block.lines) {
    if (line == "…" || line == "// …" || line == "# …")
      parts.emplace_back();
    else
      parts.back() += line;
  }
  return parts;
}

}  // namespace

std::vector<SourceFile> read_documents(const fs::path& root) {
  std::vector<SourceFile> documents;
  const auto add = [&](const fs::path& path) {
    if (path.extension() == ".md")
      documents.push_back({fs::relative(path, root).generic_string(), read_file(path)});
  };
  for (const auto& entry : fs::directory_iterator(root)) add(entry.path());
  for (const char* folder : {"docs", "configs", "tests", "scripts"})
    for (const auto& entry : fs::recursive_directory_iterator(root / folder)) add(entry.path());
  return documents;
}

std::vector<std::string> link_problems(const SourceFile& document, const fs::path& root) {
  std::vector<std::string> problems;
  std::istringstream in(document.text);
  bool code = false;
  int number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    if (trimmed(line).starts_with("```")) code = !code;
    for (size_t at = line.find("]("); !code && at != std::string::npos; at = line.find("](", at + 1)) {
      const std::string target = line.substr(at + 2, line.find_first_of(")#", at + 2) - at - 2);
      if (target.empty() || contains(target, "://")) continue;
      if (!fs::exists(root / fs::path(document.path).parent_path() / target))
        problems.push_back(document.path + ":" + std::to_string(number) + ": the link " + target +
                           " points to no file");
    }
  }
  return problems;
}

std::vector<std::string> quotation_problems(const SourceFile& document, const fs::path& root) {
  std::vector<std::string> problems;
  for (const CodeBlock& block : code_blocks(document.text)) {
    std::istringstream words(block.info);
    std::string language, path;
    words >> language >> path;
    if (path.empty()) continue;
    const std::string where = document.path + ":" + std::to_string(block.line) + ": ";
    const std::string source = without_space(read_file(root / path));
    if (source.empty()) problems.push_back(where + "quotes " + path + ", which does not exist");
    for (const std::string& part : parts_of(block))
      if (!contains(source, without_space(part)))
        problems.push_back(where + path + " does not contain: " + part);
  }
  return problems;
}

}  // namespace tapeformer::test
