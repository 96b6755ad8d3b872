// The command "tapeformer generate" for models of text.
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <numeric>

#include "core/base/errors.h"
#include "core/stopwatch.h"
#include "core/system/log.h"
#include "core/system/printable.h"
#include "core/system/terminal.h"
#include "core/system/utf8.h"
#include "data/files/gzip.h"
#include "data/text/unknown_tokens.h"
#include "train/build.h"
#include "train/cli/generate/text_commands.h"
#include "train/cli/text/input_stream.h"
#include "train/distributed/gather.h"
#include "train/distributed/processes.h"
#include "train/tasks/text/scoring.h"

namespace tapeformer {
namespace {

constexpr int64_t kDefaultLength = 500;
constexpr int64_t kMaxPromptBytes = int64_t{1} << 24;
// The speed of generation at a position is measured over this number of tokens before the position.
constexpr int64_t kSpeedTokens = 1000;

// A writer that prints a text to standard output while the text is generated. On the controlling terminal,
// control characters are escaped, and the bytes of a UTF-8 character are written together. If `silent` is
// true, the writer prints nothing.
class TextOutput {
 public:
  explicit TextOutput(bool silent) : silent_(silent), terminal_(is_controlling_terminal(STDOUT_FILENO)) {}

  void write(std::string_view text) {
    if (silent_) return;
    waiting_ += text;
    if (terminal_ && ends_inside_character()) return;
    flush();
  }
  // Ends a text. Texts are divided by a line.
  void end_text(bool is_last) {
    write(is_last ? "\n" : "\n---\n");
    if (!silent_) flush();
  }

 private:
  void flush() { print_generated_text(std::exchange(waiting_, {})); }
  bool ends_inside_character() const {
    for (size_t size = 1; size <= std::min<size_t>(3, waiting_.size()); ++size) {
      const auto byte = static_cast<uint8_t>(waiting_[waiting_.size() - size]);
      if (byte >= 0xC0) return size < (byte >= 0xF0 ? 4U : byte >= 0xE0 ? 3U : 2U);
      if (byte < 0x80) return false;
    }
    return false;
  }

  bool silent_, terminal_;
  std::string waiting_;
};

// Returns the text of a plain or compressed file. Returns the text of standard input on process 0, and "" on
// other processes, because mpirun passes standard input only to process 0.
std::string read_prompt_file(const std::string& path) {
  if (path == kStandardInputName)
    return get_process_rank() == 0 ? InputStream(path, kMaxPromptBytes).read_all(kMaxPromptBytes) : "";
  const Bytes bytes = read_unpacked(path, kMaxPromptBytes);
  return {bytes.begin(), bytes.end()};
}

// Returns the prompt. The default prompt is empty if the tokenizer has start tokens, and otherwise a line end
// or, if the vocabulary has no line end, the text of the first token whose text is not empty.
std::string read_prompt(const CommandLine& line, const AutoregressiveTask& task) {
  const Tokenizer& tokenizer = *task.tokenizer();
  const bool from_stdin = line.positionals.size() > 1, from_file = is_given(line, "prompt-file");
  if (int{from_stdin} + int{from_file} + int{is_given(line, "prompt")} + int{is_given(line, "chat")} > 1)
    throw ConfigError("expected one of --prompt, --prompt-file, --chat and -");
  if (is_given(line, "system") && !is_given(line, "chat"))
    throw ConfigError("--system: has an effect with --chat only");
  if (is_given(line, "chat"))
    return make_chat_prompt(task, line.options.get<std::string>("chat"),
                            line.options.get<std::string>("system"));
  if (from_stdin && line.positionals[1] != kStandardInputName)
    throw ConfigError("expected \"-\" for a prompt on standard input, got \"" + line.positionals[1] +
                      "\"; use --prompt or --prompt-file");
  if (from_stdin || from_file) {
    const std::string path = from_stdin ? kStandardInputName : line.options.get<std::string>("prompt-file");
    return prepare_text(read_prompt_file(path), path, tokenizer);
  }
  if (is_given(line, "prompt")) return line.options.get<std::string>("prompt");
  if (!tokenizer.start_tokens().empty()) return "";
  try {
    if (!tokenizer.encode("\n").empty()) return "\n";
  } catch (const EncodingError&) {
  }
  int64_t token = 0;
  while (token + 1 < tokenizer.vocabulary_size() && tokenizer.get_token_text(token).empty()) ++token;
  return std::string(tokenizer.get_token_text(token));
}

// Returns the start tokens of the tokenizer and the tokens of the prompt.
std::vector<int32_t> encode_prompt(const std::string& prompt, const Tokenizer& tokenizer) {
  try {
    std::vector<int32_t> tokens(tokenizer.start_tokens().begin(), tokenizer.start_tokens().end());
    const std::vector<int32_t> own = tokenizer.encode(prompt);
    tokens.insert(tokens.end(), own.begin(), own.end());
    if (tokens.empty()) throw ConfigError("the prompt is empty, expected at least one token");
    return tokens;
  } catch (const EncodingError& error) {
    throw ConfigError(
        concat_text("the prompt, byte ", error.offset + 1, ": ", describe_encoding_error(error)));
  }
}

// The number of tokens to generate, and the window of the TokenStream.
struct TextLength {
  int64_t drawn = 0;
  int64_t window = 0;  // 0: the window is the whole text
};

// Returns the maximum number of tokens that the model can read at once.
int64_t compute_window_limit(const AutoregressiveTask& task, bool recompute) {
  const AutoregressiveModelOptions& model = task.model().options();
  return recompute ? model.max_length : model.position_limit();
}

// Returns the number of tokens in the window, which is the value of --window. If the value is 0 and the model
// has neither a position limit nor a segment memory, returns max_length of the model. Throws ConfigError if
// the value is greater than compute_window_limit().
int64_t parse_window(const AutoregressiveTask& task, bool recompute, const CommandLine& line) {
  const AutoregressiveModelOptions& model = task.model().options();
  const auto window = line.options.get<int64_t>("window");
  if (window == 0) return get_default_window(task.model());
  if (window > compute_window_limit(task, recompute))
    throw ConfigError(
        concat_text("--window ", window, ": expected at most data.sequence_length = ", model.max_length,
                    recompute ? " in the mode \"recompute\"" : " with ",
                    recompute ? "" : task.config().model.get<std::string>("positions") + " positions"));
  return window;
}

// Returns the number of tokens to generate and the window. `prompt` is the number of tokens in the prompt.
// Throws ConfigError if the window is 0 and the text is longer than the model allows.
TextLength compute_text_length(const AutoregressiveTask& task, const GenerationOptions& options,
                               int64_t prompt, const CommandLine& line) {
  const bool recompute = options.mode == GenerationMode::recompute;
  const int64_t window = parse_window(task, recompute, line), limit = compute_window_limit(task, recompute);
  const std::string reason = concat_text(
      recompute ? "the mode \"recompute\" is limited to"
                : "the model has " + task.config().model.get<std::string>("positions") + " positions for",
      " data.sequence_length = ", limit, " tokens only; with --window ", limit,
      ", longer texts continue from their newest tokens");
  // The model never reads the last token, so a text can have limit + 1 tokens.
  const int64_t room = window > 0 || limit == INT64_MAX ? INT64_MAX : limit + 1 - prompt;
  if (room < 1)
    throw ConfigError(
        concat_text("the prompt has ", prompt, " tokens, expected at most ", limit, ": ", reason));
  if (!is_given(line, "length")) return {std::min(kDefaultLength, room), window};
  const auto length = line.options.get<int64_t>("length");
  if (length > room)
    throw ConfigError(concat_text("--length ", length, " after a prompt of ", prompt,
                                  " tokens, expected at most ", room, ": ", reason));
  return {length, window};
}

int64_t sum_over_processes(Communicator& processes, int64_t number) {
  const auto numbers = all_gather_numbers(processes, number);
  return std::accumulate(numbers.begin(), numbers.end(), int64_t{0});
}

// Speed and state size of the text generation of one process or, after gather(), of all processes. The times
// are totals over all texts that the process generates.
struct Speed {
  // prompt_seconds is the total time of reading the prompts, and `seconds` is the total time of drawing
  // tokens.
  double prompt_seconds = 0, seconds = 0;
  int64_t state_bytes = 0;           // size of the decoder state of the last batch; 0 in the mode "recompute"
  int64_t drawn_count = 0;           // tokens that were drawn, with the stop token that ends a text
  int64_t unknown_count = 0;         // unknown tokens that were drawn
  std::vector<Report> at_positions;  // speed over the 1,000 tokens before each position 2,000 * 10^n

  double tokens_per_second() const { return static_cast<double>(drawn_count) / seconds; }
  void gather(Communicator& processes) {
    prompt_seconds = all_reduce_max(processes, prompt_seconds);
    seconds = all_reduce_max(processes, seconds);
    drawn_count = sum_over_processes(processes, drawn_count);
    unknown_count = sum_over_processes(processes, unknown_count);
  }
  void add_fields(Report& report) const {
    report.add("drawn_tokens", drawn_count)
        .add("prompt_seconds", prompt_seconds)
        .add("seconds", seconds)
        .add("tokens_per_second", tokens_per_second())
        .add("speed", at_positions)
        .add("state_bytes", state_bytes);
  }
};

ClassSamplingOptions parse_sampling_options(const CommandLine& line) {
  const auto temperature = line.options.get<double>("temperature");
  const bool greedy = line.options.get<bool>("greedy");
  if (greedy && is_given(line, "temperature") && temperature != 0)
    throw ConfigError("--greedy and --temperature cannot be combined");
  return {.greedy = greedy || temperature == 0,
          .temperature = temperature > 0 ? temperature : 1,
          .top_k = line.options.get<int64_t>("top-k"),
          .top_p = line.options.get<double>("top-p")};
}

// Returns a stream of `batch` texts with room for `capacity` tokens. If the states of the layers do not fit
// into memory, throws std::runtime_error with advice.
std::unique_ptr<TokenStream> make_stream(const AutoregressiveTask& task, const GenerationOptions& options,
                                         int64_t batch, int64_t capacity, int64_t window) {
  GenerationOptions own = options;
  own.undrawn_tokens = list_tokens_without_text(*task.tokenizer());
  try {
    return std::make_unique<TokenStream>(task.model(), own, batch, capacity, window);
  } catch (const OutOfMemoryError& error) {
    throw std::runtime_error(concat_text(error.what(), ", for the states of ",
                                         window > 0 ? std::min(window, capacity) : capacity,
                                         " tokens; lower --length, --window or --batch, or use an attention "
                                         "kind whose state does not grow with the ",
                                         "length, such as linear"));
  }
}

// Draws tokens until each of `batch` texts has `length` tokens, or until a stop token, which is not a part of
// the text. Writes a single text to `output` while it is drawn.
std::vector<std::string> draw_texts(const AutoregressiveTask& task, const GenerationOptions& options,
                                    int64_t batch, const std::vector<int32_t>& prompt, TextLength length,
                                    TextOutput& output, Speed& speed) {
  const auto given = static_cast<int64_t>(prompt.size());
  const std::span<const int32_t> stops = task.tokenizer()->stop_tokens();
  const auto stream = make_stream(task, options, batch, given + length.drawn - 1, length.window);
  const Stopwatch prompt_watch(kCpu);
  for (const int32_t token : prompt) stream->append(token);
  stream->read();
  speed.prompt_seconds += prompt_watch.measure_elapsed_seconds();
  std::vector<std::string> texts(static_cast<size_t>(batch));
  std::vector<bool> has_ended(texts.size());
  const Stopwatch watch(kCpu);
  double block_start = 0;
  int64_t next_power = 2 * kSpeedTokens;
  for (int64_t i = 0; i < length.drawn && !std::all_of(has_ended.begin(), has_ended.end(), std::identity{});
       ++i) {
    const std::vector<int64_t> drawn = stream->draw();
    for (size_t row = 0; row < texts.size(); ++row) {
      if (has_ended[row]) continue;
      ++speed.drawn_count;
      has_ended[row] = std::find(stops.begin(), stops.end(), drawn[row]) != stops.end();
      if (has_ended[row]) continue;
      const std::string_view token = get_shown_text(*task.tokenizer(), drawn[row]);
      speed.unknown_count += drawn[row] == task.tokenizer()->unknown_token();
      texts[row] += token;
      if (batch == 1) output.write(token);
    }
    if (stream->size() == next_power - kSpeedTokens) block_start = watch.measure_elapsed_seconds();
    if (stream->size() != next_power) continue;
    if (i >= kSpeedTokens)
      speed.at_positions.push_back(
          Report()
              .add("position", next_power)
              .add("tokens_per_second", static_cast<double>(batch * kSpeedTokens) /
                                            (watch.measure_elapsed_seconds() - block_start)));
    next_power *= 10;
  }
  speed.seconds += watch.measure_elapsed_seconds();
  speed.state_bytes = stream->state_bytes();
  return texts;
}

// Copies all texts to all processes. Process r of `size` processes has generated the batches r, r + size, ….
void gather_drawn(Communicator& processes, size_t batch, std::vector<std::string>& texts) {
  const auto size = static_cast<size_t>(processes.size()), rank = static_cast<size_t>(processes.rank());
  for (size_t first = 0; first < texts.size(); first += size * batch)
    for (size_t row = first; row < first + batch; ++row) {
      const size_t own = row + rank * batch;
      const auto round = all_gather_texts(processes, own < texts.size() ? texts[own] : "");
      for (size_t r = 0; r < size && row + r * batch < texts.size(); ++r) texts[row + r * batch] = round[r];
    }
}

void generate_text(const LoadedTask& run, const CommandLine& line) {
  const GenerationOptions options = make_generation_options(run, line);
  const auto& task = run.as<AutoregressiveTask>();
  const bool json = line.common_options.json;
  Communicator& processes = *init_process_group().communicator;
  const std::string prompt = broadcast_text(processes, read_prompt(line, task));
  const std::vector<int32_t> tokens = encode_prompt(prompt, *task.tokenizer());
  const TextLength length = compute_text_length(task, options, static_cast<int64_t>(tokens.size()), line);
  const int64_t count = is_given(line, "count") ? line.options.get<int64_t>("count") : 1;
  const int64_t batch =
      std::min(line.options.get<int64_t>("batch"), (count + processes.size() - 1) / processes.size());
  const bool several = processes.size() > 1;
  const std::string shown = is_given(line, "chat") ? "" : prompt;
  std::vector<std::string> texts(static_cast<size_t>(count));
  // Without --json, a single process prints the texts of a batch before it draws the next batch. If there are
  // several processes, process 0 prints all texts at the end.
  TextOutput output(json || several);
  Speed speed;
  for (int64_t first = processes.rank() * batch; first < count; first += processes.size() * batch) {
    GenerationOptions own = options;
    own.first_sequence_index = first;
    const int64_t now = std::min(batch, count - first);
    if (now == 1) output.write(shown);
    const auto drawn = draw_texts(task, own, now, tokens, length, output, speed);
    std::copy(drawn.begin(), drawn.end(), texts.begin() + first);
    for (int64_t i = first; i < first + now; ++i) {
      if (now > 1) output.write(shown + texts[static_cast<size_t>(i)]);
      output.end_text(i + 1 == count);
    }
  }
  if (several) {
    gather_drawn(processes, static_cast<size_t>(batch), texts);
    TextOutput gathered(json || !processes.is_first());
    for (const std::string& text : texts) {
      gathered.write(shown + text);
      gathered.end_text(&text == &texts.back());
    }
  }
  speed.gather(processes);
  const int64_t unknown = count_unknown(*task.tokenizer(), tokens);
  warn_of_unknown_characters(unknown, "the prompt");
  warn_of_unknown_text(speed.unknown_count, "the generated text");
  log_info(speed.drawn_count, " tokens in ", speed.seconds, " s, ", speed.tokens_per_second(), " tokens/s");
  if (!json) return;
  Report report = Report()
                      .add("count", count)
                      .add("batch", batch)
                      .add("prompt", prompt)
                      .add("prompt_tokens", static_cast<int64_t>(tokens.size()))
                      .add("length", length.drawn)
                      .add("window", length.window)
                      .add("mode", to_string(options.mode));
  speed.add_fields(report);
  report.add("checkpoint", run.checkpoint_folder.string());
  if (unknown > 0) report.add("unknown_prompt_tokens", unknown);
  if (speed.unknown_count > 0) report.add("unknown_tokens", speed.unknown_count);
  print_report(report.add("texts", texts), line.common_options);
}

}  // namespace

std::vector<OptionSpec> make_sampling_options() {
  return {{.name = "temperature",
           .default_value = 1.0,
           .help = "divides the logits; 0: the most probable token",
           .min = 0,
           .max = 1000},
          {.name = "top-k",
           .default_value = int64_t{0},
           .help = "draw from the K most probable tokens; 0: all",
           .min = 0,
           .max = 1 << 24},
          {.name = "top-p",
           .default_value = 1.0,
           .help = "draw from the smallest set of most probable tokens with at least this total probability",
           .min = 1e-9,
           .max = 1},
          {.name = "greedy", .default_value = false, .help = "same as --temperature 0"}};
}

OptionSpec make_batch_option() {
  return {.name = "batch",
          .default_value = int64_t{64},
          .help = "number per batch of a process",
          .min = 1,
          .max = 1 << 20};
}

GenerationOptions make_generation_options(const LoadedTask& run, const CommandLine& line) {
  GenerationOptions options;
  options.mode = choose_generation_mode(line, run.as<AutoregressiveTask>().model());
  options.weights = apply_weights_option(line, *run.task);
  options.use_cuda_graphs = run.config().run.cuda_graphs;
  if (line.options.get<std::string>("scale") == "exp") options.logistic_scale = SamplingScale::exp;
  options.sampling = parse_sampling_options(line);
  options.seed = static_cast<uint64_t>(line.common_options.seed.value_or(0));
  return options;
}

CommandForm make_text_form() {
  return {{"text",
           {make_batch_option(),
            {.name = "prompt", .default_value = std::string(), .help = "the text to continue"},
            {.name = "prompt-file",
             .default_value = std::string(),
             .help = "file with the text to continue; -: standard input"},
            {.name = "chat",
             .default_value = std::string(),
             .help = "a question, which is put into the chat template of the model; prints the answer only"},
            {.name = "system", .default_value = std::string(), .help = "system message before --chat"},
            {.name = "length",
             .default_value = kDefaultLength,
             .help = "maximum number of tokens to draw; the default is limited to the length of training",
             .min = 1,
             .max = 1e12},
            {.name = "window",
             .default_value = int64_t{0},
             .help = "maximum number of tokens that the model reads; a longer text continues from the newer "
                     "half of them; 0: data.sequence_length with rotary positions or none, otherwise no "
                     "maximum",
             .min = 0,
             .max = 1e12}}},
          generate_text};
}

}  // namespace tapeformer
