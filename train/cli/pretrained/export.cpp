// The command "tapeformer export": writes a trained model in the format of another program.
#include <cctype>
#include <filesystem>

#include "core/system/files.h"
#include "core/system/log.h"
#include "data/files/text_lines.h"
#include "train/cli/commands.h"
#include "train/cli/pretrained/new_path.h"
#include "train/cli/run_options.h"
#include "train/pretrained/exported_model.h"
#include "train/pretrained/families/find_family.h"

namespace tapeformer {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxTemplateBytes = size_t{1} << 20;

std::vector<std::string> list_family_names() {
  std::vector<std::string> names{""};
  for (const ModelFamily& family : list_model_families()) names.push_back(family.name);
  return names;
}

GgufWriteType parse_type(const std::string& name) {
  return name == "float16"    ? GgufWriteType::float16
         : name == "bfloat16" ? GgufWriteType::bfloat16
         : name == "q8_0"     ? GgufWriteType::q8_0
                              : GgufWriteType::float32;
}

// Returns the template in --chat-template, or "".
std::string read_chat_template(const CommandLine& line) {
  const auto& path = line.options.get<std::string>("chat-template");
  if (path.empty()) return "";
  std::string text;
  try {
    text = read_file(path, kMaxTemplateBytes);
  } catch (const FileError& error) {
    throw DataError(error.what());
  }
  if (find_invalid_utf8(text) != std::string::npos) throw DataError(path + ": is not valid UTF-8");
  return text;
}

}  // namespace

CommandSpec make_export_spec(const Arguments& /*words*/) {
  return {
      .summary = "Writes a language model for other programs: a folder of Hugging Face, or a GGUF file.",
      .positionals = {make_run_argument(), {"OUTPUT", "new folder, or new file whose name ends in .gguf"}},
      .options = {make_checkpoint_option(),
                  {.name = "type",
                   .default_value = std::string("float32"),
                   .help = "type of matrices; folders: float32 or bfloat16",
                   .choices = {"float32", "float16", "bfloat16", "q8_0"}},
                  {.name = "family",
                   .default_value = std::string(),
                   .help = "family of models of transformers",
                   .choices = list_family_names(),
                   .default_text = "the first one that has such models"},
                  {.name = "context",
                   .default_value = int64_t{0},
                   .help = "longest text that the files name",
                   .min = 0,
                   .max = 1 << 30,
                   .default_text = "that of the imported model, or data.sequence_length if it is longer"},
                  {.name = "chat-template",
                   .default_value = std::string(),
                   .help = "file with the Jinja template of conversations",
                   .default_text = "chat_template.jinja of the run, if there is one"}},
      .details =
          "The tokenizers \"bpe\", \"bytes\" and \"sentencepiece\" are written, too, the last one to "
          "folders.",
      .uses_config = true};
}

int run_export(const CommandLine& line) {
  const fs::path output = check_new_path("OUTPUT", line.positionals[1]);
  std::string extension = output.extension().string();
  for (char& c : extension) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  const bool is_gguf = extension == ".gguf";
  ExportOptions options{.type = parse_type(line.options.get<std::string>("type")),
                        .context_length = line.options.get<int64_t>("context")};
  if (!is_gguf) check_folder_type(options.type);
  const std::string chat_template = read_chat_template(line);
  const LoadedTask run = load_task(line, ConfigPurpose::generation);
  require_subject(*run.task, {"text", "symbols"}, "\"export\"");
  const auto& task = run.as<AutoregressiveTask>();
  task.model().move(kCpu);
  const ModelFamily& family = choose_model_family(run.config(), line.options.get<std::string>("family"));
  const Tokenizer* const tokenizer = task.tokenizer().get();
  if (tokenizer && !convert_to_bpe(tokenizer) && tokenizer->name() != kSentencePieceTokenizerName)
    log_warning("the tokenizer \"", task.tokenizer()->name(),
                "\" is not written: tokenizer.json cannot describe its tokens");
  options.facts = read_source_facts(run.checkpoint_folder);
  if (!chat_template.empty()) options.facts.chat_template = chat_template;
  write_new_path(output, [&](const fs::path& path) {
    if (is_gguf)
      return write_gguf_model(path.string(), family, run.config(), task.model(), tokenizer, options);
    fs::create_directory(path);
    write_huggingface_folder(path.string(), family, run.config(), task.model(), tokenizer, options);
  });
  print_report(Report()
                   .add("output", output.string())
                   .add("family", family.name)
                   .add("parameters", count_parameters(task.model()))
                   .add("checkpoint", run.checkpoint_folder.string()),
               line.common_options);
  return 0;
}

}  // namespace tapeformer
