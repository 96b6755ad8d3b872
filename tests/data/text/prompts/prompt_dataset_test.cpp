#include "data/text/prompts/prompt_dataset.h"

#include <doctest/doctest.h>

#include "tests/support/message_log.h"
#include "tests/support/temp_dir.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

TextOptions make_text(const std::filesystem::path& path, int64_t length) {
  TextOptions text;
  text.path = path.string();
  text.sequence_length = length;
  text.valid_share = text.test_share = 0;
  return text;
}

// Returns the tokens of a window as text, in which each token that is predicted precedes "^".
std::string show(const Dataset& set, int64_t index) {
  const Batch batch = set.batch(std::vector<int64_t>{index});
  std::string text;
  for (int64_t t = 0; t < batch.tokens.numel(); ++t) {
    const auto c = static_cast<char>(batch.tokens.data<uint8_t>()[t]);
    text += c == 0 ? '_' : c == '\n' ? '/' : c;
    if (t > 0 && batch.mask.data<uint8_t>()[t - 1]) text += '^';
  }
  return text;
}

PromptDataset open_split(const TextOptions& text, const PromptOptions& options = {},
                         const std::string& split = "train") {
  return {text, options, "prompts", split, make_byte_tokenizer()};
}

std::string find_error(const std::string& content, const PromptOptions& options = {}) {
  const TempDir dir;
  write_file(dir / "a.jsonl", content);
  try {
    read_conversations((dir / "a.jsonl").string(), options, *make_byte_tokenizer());
  } catch (const DataError& error) {
    const std::string path = (dir / "a.jsonl").string(), text = error.what();
    return text.starts_with(path) ? text.substr(path.size()) : text;
  }
  return "no error";
}

}  // namespace

TEST_CASE("a model learns the answers only, in a window of each conversation or in packed windows") {
  const TempDir dir;
  write_file(dir / "a.jsonl", std::string("{\"prompt\": \"ab\", \"completion\": \"xy\", \"id\": 3}\n\n"
                                          "{\"prompt\": \"c\", \"completion\": \"z\"}\n"
                                          "{\"completion\": \"tuvw\", \"prompt\": \"def\"}\n"));
  const TextOptions text = make_text(dir / "a.jsonl", 7);
  const PromptDataset padded = open_split(text, {.packs = false});
  REQUIRE(padded.size() == 3);
  CHECK(show(padded, 0) == "abx^y^____");
  CHECK(show(padded, 1) == "cz^______");
  CHECK(show(padded, 2) == "deft^u^v^w^_");
  const PromptDataset packed = open_split(text);
  REQUIRE(packed.size() == 2);
  CHECK(show(packed, 0) == "abx^y^cz^__");
  CHECK(show(packed, 1) == "deft^u^v^w^_");
  CHECK(packed.info().length == 7);
  CHECK(packed.info().vocabulary == 256);
  TextOptions limited = text;
  limited.limit = 1;
  CHECK(open_split(limited).size() == 1);
}

TEST_CASE("long conversations are cut, and dropped if no answer is left") {
  const TempDir dir;
  write_file(dir / "a.jsonl", std::string("{\"prompt\": \"ab\", \"completion\": \"xyz\"}\n{\"prompt\": "
                                          "\"abcdef\", \"completion\": \"x\"}\n"));
  const PromptDataset set = open_split(make_text(dir / "a.jsonl", 3), {.packs = false});
  REQUIRE(set.size() == 1);
  CHECK(show(set, 0) == "abx^y^");
  CHECK_THROWS_WITH_AS(
      open_split(make_text(dir / "a.jsonl", 1)),
      doctest::Contains("no answer begins in the first 1 tokens; raise TextOptions::sequence_length"),
      DataError);
}

TEST_CASE("the splits are shares of the conversations, or files of their own") {
  const TempDir dir;
  std::string lines;
  for (char c = 'a'; c <= 'j'; ++c)
    lines += std::string("{\"prompt\": \"") + c + "\", \"completion\": \"x\"}\n";
  write_file(dir / "a.jsonl", lines);
  TextOptions text = make_text(dir / "a.jsonl", 1);
  text.valid_share = 0.2;
  text.test_share = 0.1;
  CHECK(open_split(text).size() == 7);
  CHECK(show(open_split(text, {}, "valid"), 0) == "hx^");
  CHECK(open_split(text, {}, "valid").size() == 2);
  CHECK(show(open_split(text, {}, "test"), 0) == "jx^");
  write_file(dir / "b.jsonl", std::string("{\"prompt\": \"q\", \"completion\": \"x\"}\n"));
  text.test_path = (dir / "b.jsonl").string();
  CHECK(show(open_split(text, {}, "test"), 0) == "qx^");
  CHECK(open_split(text).size() == 8);
  text.test_path = "";
  text.test_share = 0;
  CHECK_THROWS_WITH_AS(open_split(text, {}, "test"),
                       doctest::Contains("the split \"test\" of 10 conversations is empty"), DataError);
}

TEST_CASE("templates put the messages into the text that chat models expect") {
  const std::vector<ChatMessage> messages = {
      {"system", "S"}, {"user", " U\n"}, {"assistant", "A "}, {"user", "V"}, {"assistant", "B"}};
  const auto mark = [](const std::vector<ChatPart>& parts) {
    std::string text;
    for (const ChatPart& part : parts) text += part.is_answer ? "[" + part.text + "]" : part.text;
    return text;
  };
  CHECK(mark(format_chat(ChatTemplate::chatml, messages)) ==
        "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\n U\n<|im_end|>\n<|im_start|>assistant\n[A "
        "<|im_end|>]\n"
        "<|im_start|>user\nV<|im_end|>\n<|im_start|>assistant\n[B<|im_end|>]\n");
  CHECK(mark(format_chat(ChatTemplate::llama3, messages)) ==
        "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nS<|eot_id|>"
        "<|start_header_id|>user<|end_header_id|>\n\nU<|eot_id|><|start_header_id|>assistant<|end_header_id|>"
        "\n\n"
        "[A<|eot_id|>]<|start_header_id|>user<|end_header_id|>\n\nV<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n[B<|eot_id|>]");
  CHECK(format_chat_prompt(ChatTemplate::chatml, {{"user", "U"}}) ==
        "<|im_start|>user\nU<|im_end|>\n<|im_start|>assistant\n");
  CHECK(format_chat_prompt(ChatTemplate::llama3, {{"user", "U"}}) ==
        "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nU<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n");
  CHECK(format_chat_prompt(ChatTemplate::none, {{"user", "U"}}) == "U");
}

TEST_CASE("messages and prompts of a file get the template, and a system message if they have none") {
  const TempDir dir;
  write_file(dir / "a.jsonl", std::string("{\"messages\": [{\"role\": \"user\", \"content\": \"U\"}, "
                                          "{\"role\": \"assistant\", \"content\": \"A\"}]}\n"
                                          "{\"prompt\": \"P\", \"completion\": \"C\"}\n"));
  const auto text_of = [&](const PromptOptions& options, size_t index) {
    const auto list = read_conversations((dir / "a.jsonl").string(), options, *make_byte_tokenizer());
    std::string text;
    for (size_t i = 0; i < list[index].tokens.size(); ++i)
      if (list[index].is_answer[i] || index == 1) text += static_cast<char>(list[index].tokens[i]);
    return text;
  };
  const PromptOptions chatml{.chat_template = ChatTemplate::chatml, .system_prompt = "S"};
  CHECK(text_of(chatml, 0) == "A<|im_end|>");
  CHECK(
      text_of(chatml, 1) ==
      "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nP<|im_end|>\n<|im_start|>assistant\nC<|im_end|>\n");
}

TEST_CASE("conversations without a predicted answer are dropped, and their number is logged") {
  const TempDir dir;
  write_file(dir / "a.jsonl", std::string("{\"prompt\": \"\", \"completion\": \"\"}\n"
                                          "{\"prompt\": \"a\", \"completion\": \"\"}\n"
                                          "{\"prompt\": \"\", \"completion\": \"b\"}\n"
                                          "{\"prompt\": \"a\", \"completion\": \"b\"}\n"));
  TextOptions text;
  text.path = (dir / "a.jsonl").string();
  text.sequence_length = 8;
  text.valid_share = text.test_share = 0;
  MessageLog log;
  CHECK(open_split(text, {.packs = false}).size() == 1);
  CHECK(log.text().find("3 of 4 conversations are dropped") != std::string::npos);
}

TEST_CASE("errors in a file of prompts name the file and the line") {
  const std::string good = "{\"prompt\": \"a\", \"completion\": \"b\"}\n";
  CHECK(find_error(good + "{\"prompt\": \"a\"") ==
        ":2: expected a JSON object, found no valid JSON at byte 15");
  CHECK(find_error(good + "{\"prompt\": \"a\", \"completion\": \"b\", \"score\": 1e999}\n") ==
        ":2: contains a number that is too large");
  CHECK(find_error(good + "[1]\n") == ":2: expected a JSON object");
  CHECK(find_error(good + "{}\n") == ":2: expected either \"prompt\" and \"completion\", or \"messages\"");
  CHECK(find_error("{\"prompt\": \"a\"}\n") == ":1: completion: is missing");
  CHECK(find_error("{\"prompt\": 3, \"completion\": \"b\"}\n") ==
        ":1: prompt: expected a text, got another type");
  CHECK(find_error("{\"messages\": []}\n") ==
        ":1: messages need a template: set PromptOptions::chat_template");
  const PromptOptions chatml{.chat_template = ChatTemplate::chatml};
  CHECK(find_error("{\"messages\": []}\n", chatml) == ":1: messages: no message has the role \"assistant\"");
  CHECK(find_error("{\"messages\": {}}\n", chatml) == ":1: messages: expected a list");
  CHECK(find_error("{\"messages\": [3]}\n", chatml) ==
        ":1: messages[0]: expected an object with a role and a content");
  CHECK(find_error("{\"messages\": [{\"role\": \"bot\", \"content\": \"\"}]}\n", chatml) ==
        ":1: messages[0].role: expected \"system\", \"user\" or \"assistant\"");
  CHECK(find_error("{\"messages\": [{\"role\": \"user\"}]}\n", chatml) ==
        ":1: messages[0].content: is missing");
  CHECK(find_error("\n") == ": no prompts and answers");
}
