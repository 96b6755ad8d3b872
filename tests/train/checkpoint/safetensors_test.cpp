#include "train/checkpoint/safetensors.h"

#include <doctest/doctest.h>

#include <cstring>

#include "tests/train/config/config_fixture.h"

using namespace tapeformer;

namespace {

// Returns the contents of a safetensors file: the length of the header, the header, and zeros as data.
std::string raw_file(const std::string& json, size_t data_bytes) {
  const uint64_t length = json.size();
  std::string text(8, '\0');
  std::memcpy(text.data(), &length, 8);
  return text + json + std::string(data_bytes, '\0');
}

std::string opening_error(const std::string& path) {
  try {
    const SafetensorsFile file(path);
    for (const auto& entry : file.entries()) file.read(entry.first);
  } catch (const CheckpointError& error) {
    return error.what();
  }
  return "";
}

// Writes a file with this header and opens it. Returns the error message without its prefix "PATH: no valid
// safetensors file: ", or "" if there is no error.
std::string header_error(const std::string& json, size_t data_bytes) {
  TempFolder folder;
  const auto path = folder.write("x.safetensors", raw_file(json, data_bytes));
  const std::string error = opening_error(path), prefix = path + ": no valid safetensors file: ";
  if (error.empty()) return "";
  CHECK_MESSAGE(error.starts_with(prefix), error);
  return error.substr(std::min(prefix.size(), error.size()));
}

std::string entry(const std::string& name, const std::string& dtype, const std::string& shape,
                  const std::string& offsets) {
  return concat_text("\"", name, "\":{\"dtype\":\"", dtype, "\",\"shape\":", shape,
                     ",\"data_offsets\":", offsets, "}");
}

std::string braced(const std::string& entries) {
  return concat_text("{", entries, "}");
}

std::map<std::string, Tensor> sample_tensors() {
  return {{"layers.0.weight", Tensor::from_vector<float>({1, -2.5, 3, 4, 5, 6}, {2, 3})},
          {"double", Tensor::from_vector<double>({0.1, 1e300}, {2})},
          {"half", Tensor::from_vector<float>({1, 2, 3}, {3}).to(DType::bfloat16)},
          {"int", Tensor::from_vector<int32_t>({-7}, {1})},
          {"long", Tensor::from_vector<int64_t>({INT64_MIN, INT64_MAX}, {2, 1})},
          {"bytes", Tensor::from_vector<uint8_t>({0, 255, 3}, {3})},
          {"scalar", Tensor::full({}, 42)},
          {"empty", Tensor::zeros({0, 3})}};
}

bool has(const std::string& text, const std::string& part) {
  if (text.find(part) == std::string::npos) MESSAGE("in: ", text);
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("safetensors: tensors of every dtype, scalars, empty and strided tensors are read back exactly") {
  TempFolder folder;
  auto tensors = sample_tensors();
  tensors["transposed"] = tensors["layers.0.weight"].view({3, 2}, {1, 3});
  const auto path = folder.path("a.safetensors");
  write_safetensors(path, tensors, {{"format", "pt"}, {"quote", "\"é\n"}});
  const SafetensorsFile file(path);
  CHECK(file.metadata().at("quote") == "\"é\n");
  REQUIRE(file.entries().size() == tensors.size());
  for (const auto& [name_bound, tensor] : tensors) {
    const auto& name = name_bound;  // clang 14 cannot capture structured bindings
    const Tensor read = file.read(name);
    CHECK_MESSAGE(read.dtype() == tensor.dtype(), name);
    CHECK_MESSAGE(read.shape() == tensor.shape(), name);
    CHECK_MESSAGE(read.to_vector() == tensor.to_vector(), name);
  }
  CHECK(file.read("long").data<int64_t>()[1] == INT64_MAX);
  CHECK_THROWS_AS(file.read("none"), CheckpointError);
}

TEST_CASE("safetensors: a padded header and descending element sizes align the data") {
  TempFolder folder;
  const auto path = folder.path("a.safetensors");
  write_safetensors(path, sample_tensors());
  const std::string text = read_file(path);
  uint64_t length = 0;
  std::memcpy(&length, text.data(), 8);
  CHECK(length % 8 == 0);
  const SafetensorsFile file(path);
  for (const auto& [name_bound, e] : file.entries()) {
    const auto& name = name_bound;  // clang 14 cannot capture structured bindings
    CHECK_MESSAGE(e.begin % static_cast<uint64_t>(size_of(e.dtype)) == 0, name);
  }
  write_safetensors(path, {});
  CHECK(SafetensorsFile(path).entries().empty());
}

TEST_CASE("a truncated file is an error, at every byte of its header and data") {
  TempFolder folder;
  write_safetensors(folder.path("a"), sample_tensors(), {{"format", "pt"}});
  const std::string whole = read_file(folder.path("a"));
  for (size_t size = 0; size < whole.size(); ++size) {
    const std::string error = opening_error(folder.write("cut", whole.substr(0, size)));
    CHECK_MESSAGE(error.starts_with(folder.path("cut") + ": no valid safetensors file: "), size);
  }
  CHECK(has(opening_error(folder.write("cut", whole + "x")), "bytes of data, the file holds"));
}

TEST_CASE("changing any byte of a header causes an error or a valid header, and no crash") {
  TempFolder folder;
  write_safetensors(folder.path("a"), {{"w", Tensor::zeros({2, 3})}, {"b", Tensor::zeros({3})}});
  const std::string whole = read_file(folder.path("a"));
  const size_t data = whole.find('{') + whole.substr(8).find_last_of('}') + 1;
  size_t errors = 0, loads = 0;
  for (size_t i = 0; i < data; ++i)
    for (const char c : {'\0', '9', '"', '}', '[', '-', '\xff', 'x'}) {
      std::string changed = whole;
      changed[i] = c;
      ++(opening_error(folder.write("changed", changed)).empty() ? loads : errors);
    }
  CHECK(errors > loads);
  CHECK(loads > 0);  // the file is still valid if only a tensor name has changed
}

TEST_CASE("wrong header lengths allocate no memory") {
  TempFolder folder;
  for (const uint64_t length :
       {uint64_t{9}, uint64_t{100'000'001}, uint64_t{1} << 40, UINT64_MAX, UINT64_MAX - 7}) {
    std::string text(16, '{');
    std::memcpy(text.data(), &length, 8);
    CHECK(has(opening_error(folder.write("x", text)), "expected a header of "));
  }
}

TEST_CASE("wrong offsets are errors: gaps, overlaps, beyond the end, reversed, of another size") {
  const std::string a = entry("a", "F32", "[2]", "[0,8]");
  CHECK(header_error(braced(a), 8).empty());
  CHECK(has(header_error(braced(concat_text(a, ",", entry("b", "F32", "[1]", "[12,16]"))), 16),
            "expected it to start at 8"));
  CHECK(has(header_error(braced(concat_text(a, ",", entry("b", "F32", "[1]", "[4,8]"))), 8),
            "expected it to start at 8"));
  CHECK(has(header_error(braced(concat_text(a, ",", entry("b", "F32", "[2]", "[0,8]"))), 8),
            "expected it to start at 8"));
  CHECK(has(header_error(braced(entry("a", "F32", "[2]", "[0,8]")), 4), "end within the 4 bytes"));
  CHECK(has(header_error(braced(entry("a", "F32", "[2]", "[8,0]")), 8), "lies at bytes 8 to 0"));
  CHECK(
      has(header_error(braced(entry("a", "F32", "[3]", "[0,8]")), 8), "needs 12 bytes, its offsets give 8"));
  CHECK(has(header_error(braced(entry("a", "U8", "[8]", "[0,9223372036854775807]")), 8), "end within"));
  CHECK(has(header_error(braced(entry("a", "U8", "[8]", "[0,18446744073709551615]")), 8),
            "found 18446744073709551615"));
  CHECK(has(header_error(braced(entry("a", "U8", "[8]", "[0,-8]")), 8), "found -8"));
  CHECK(has(header_error(braced(entry("a", "U8", "[8]", "[0,8,8]")), 8), "expected two data offsets"));
  CHECK(has(header_error(braced(a), 9), "describes 8 bytes of data, the file holds 9"));
}

TEST_CASE("overflowing shapes are errors") {
  for (const char* shape :
       {"[4294967296,4294967296,4294967296]", "[9223372036854775807,2]", "[4611686018427387904]",
        "[0,9223372036854775807,4]", "[2305843009213693952,8,1]"})
    CHECK(has(header_error(braced(entry("a", "F32", shape, "[0,0]")), 0), "overflows"));
  CHECK(has(header_error(braced(entry("a", "F32", "[99999999999999999999]", "[0,0]")), 0), "found 1e+20"));
  CHECK(has(header_error(braced(entry("a", "F32", "[1.5]", "[0,0]")), 0), "found 1.5"));
  CHECK(has(header_error(braced(entry("a", "F32", "[1,1,1,1,1,1,1]", "[0,4]")), 4), "dimensions"));
  CHECK(
      has(header_error(braced(entry("a", "F32", "[1000000000000]", "[0,4000000000000]")), 8), "end within"));
}

TEST_CASE("malformed headers are errors") {
  const std::string a = entry("a", "F32", "[2]", "[0,8]");
  CHECK(has(header_error("", 0), "does not start"));
  CHECK(has(header_error("[]", 0), "does not start"));
  CHECK(has(header_error(concat_text("{", a), 8), "not valid JSON at byte"));
  CHECK(has(header_error(concat_text(braced(a), " x"), 8), "not valid JSON at byte"));
  CHECK(has(header_error("{\"\xff\":{}}", 0), "not valid JSON at byte"));
  CHECK(has(header_error(braced(concat_text(a, ",", a)), 8), "two entries named \"a\""));
  CHECK(has(header_error("{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\"}}", 0), "two entries named \"dtype\""));
  CHECK(
      has(header_error("{\"a\":{\"dtype\":\"F32\",\"shape\":[]}}", 0), "lacks dtype, shape or data_offsets"));
  CHECK(has(header_error("{\"a\":{\"dtipe\":\"F32\"}}", 0), "unknown field \"dtipe\""));
  CHECK(has(header_error(braced(entry("a", "F8_E4M3", "[4]", "[0,4]")), 4),
            "has the dtype \"F8_E4M3\", expected F32"));
  CHECK(has(header_error("{\"a\":3}", 0), "\"a\": expected an object, found number"));
  CHECK(has(header_error("{\"a\":{\"shape\":[[1]]}}", 0), "a list where none"));
  CHECK(has(header_error("{\"a\":{\"shape\":{\"b\":1}}}", 0), "an object where none"));
  CHECK(has(header_error(braced(entry("a", "F32", "null", "[0,4]")), 4), "expected a list, found null"));
  CHECK(has(header_error("{\"__metadata__\":{\"a\":1}}", 0),
            "metadata \"a\": expected a string, found number"));
  CHECK(has(header_error("{\"__metadata__\":{\"a\":\"b\",\"a\":\"b\"}}", 0), "two entries named \"a\""));
  CHECK(has(header_error(braced(concat_text("\"__metadata__\":{},", a, ",\"__metadata__\":{}")), 8),
            "two entries named"));
  std::string deep = "{\"a\":{\"shape\":";
  CHECK(has(header_error(deep + std::string(1'000'000, '['), 0), "a list where none"));
  CHECK(header_error(concat_text(braced(a), "     "), 8).empty());
}

TEST_CASE("a header with very many small entries is an error") {
  std::string entries;
  for (int i = 0; i < 100'001; ++i)
    entries += concat_text(i ? "," : "", entry(std::to_string(i), "U8", "[0]", "[0,0]"));
  CHECK(has(header_error(braced(entries), 0), "more than 100000 entries"));
}

TEST_CASE("one error names all missing, unexpected and wrong tensors, and no tensor changes") {
  TempFolder folder;
  const auto path = folder.path("a.safetensors");
  write_safetensors(path, {{"same", Tensor::full({2}, 5)},
                           {"shape", Tensor::zeros({2, 3})},
                           {"kind", Tensor::zeros({2}, DType::int64)},
                           {"more", Tensor::zeros({1})}});
  const Tensor same = Tensor::full({2}, 1);
  const SafetensorsFile file(path);
  CHECK_THROWS_WITH_AS(
      file.load_into({{"same", same},
                      {"shape", Tensor::zeros({3, 2})},
                      {"kind", Tensor::zeros({2})},
                      {"less", Tensor::zeros({1})}}),
      (path + ": the tensors do not match:\n"
              "  1 missing: less\n"
              "  1 not expected: more\n"
              "  2 of another shape or dtype: shape (expected (3, 2) float32, found (2, 3) float32), "
              "kind (expected (2,) float32, found (2,) int64)")
          .c_str(),
      CheckpointError);
  CHECK(same.to_vector() == std::vector<double>{1, 1});
}

TEST_CASE("loading converts between floating dtypes and into strided tensors") {
  TempFolder folder;
  const auto path = folder.path("a.safetensors");
  write_safetensors(path, {{"w", Tensor::from_vector<float>({1, 2, 3, 4, 5, 6}, {2, 3})}});
  const Tensor wide = Tensor::zeros({2, 3}, DType::float64);
  SafetensorsFile(path).load_into({{"w", wide}});
  CHECK(wide.to_vector() == std::vector<double>{1, 2, 3, 4, 5, 6});
  const Tensor base = Tensor::zeros({3, 2});
  SafetensorsFile(path).load_into({{"w", base.view({2, 3}, {1, 2})}});
  CHECK(base.to_vector() == std::vector<double>{1, 4, 2, 5, 3, 6});
}

TEST_CASE("a file that is missing, a folder or shrinks after opening is an error") {
  TempFolder folder;
  CHECK(has(opening_error(folder.path("none")), "none: No such file or directory"));
  CHECK(has(opening_error(folder.path("")), "Is a directory"));
  const auto path = folder.path("a");
  write_safetensors(path, {{"w", Tensor::zeros({100})}});
  const SafetensorsFile file(path);
  std::filesystem::resize_file(path, 200);
  CHECK_THROWS_AS(file.read("w"), CheckpointError);
}
