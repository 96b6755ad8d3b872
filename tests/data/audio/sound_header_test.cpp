#include <doctest/doctest.h>
#include <fcntl.h>
#include <sndfile.h>

#include <cstring>
#include <set>

#include "core/base/errors.h"
#include "core/system/files.h"
#include "data/files/command.h"
#include "tests/data/audio/sounds.h"
#include "tests/data/support.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

constexpr int kWav = SF_FORMAT_WAV | SF_FORMAT_PCM_16;
constexpr int kVorbis = SF_FORMAT_OGG | SF_FORMAT_VORBIS, kOpus = SF_FORMAT_OGG | SF_FORMAT_OPUS;

// Returns the contents of a recording of one second.
std::string make_sound(int format, int rate = 16000) {
  const TempDir dir;
  write_sound(dir / "sound", format, tone(rate, 300, rate), rate);
  return read_file(dir / "sound");
}

std::string reading_error(const std::string& bytes, const AudioOptions& options = {}) {
  const TempDir dir;
  write_file(dir / "sound", bytes);
  return message_of<DataError>([&] { read_audio(dir / "sound", options); });
}

std::vector<float> read_bytes_as_sound(const std::string& bytes) {
  const TempDir dir;
  write_file(dir / "sound", bytes);
  return read_audio(dir / "sound").samples;
}

// Returns the samples that AudioStream reads if standard input is a file with these bytes.
std::vector<float> redirected(const std::string& bytes) {
  const TempDir dir;
  write_file(dir / "sound", bytes);
  const File file((dir / "sound").string(), O_RDONLY);
  AudioStream stream(AudioPipe{.descriptor = file.descriptor()}, {});
  std::vector<float> found;
  for (auto block = stream.next(); !block.empty(); block = stream.next())
    found.insert(found.end(), block.begin(), block.end());
  return found;
}

void set_number(std::string& bytes, size_t offset, uint32_t number) {
  std::memcpy(&bytes[offset], &number, sizeof(number));
}

// Returns a WAV with other sizes in its header.
std::string with_sizes(std::string wav, uint32_t file_size, uint32_t data_size) {
  set_number(wav, 4, file_size);
  set_number(wav, wav.find("data") + 4, data_size);
  return wav;
}

// Returns the offsets of the pages of an Ogg file.
std::vector<size_t> find_pages(const std::string& ogg) {
  std::vector<size_t> pages;
  for (size_t at = ogg.find("OggS"); at != std::string::npos; at = ogg.find("OggS", at + 1))
    pages.push_back(at);
  return pages;
}

}  // namespace

TEST_CASE("a WAV with a size that programs write to pipes is read to its end, as a file and from a pipe") {
  const std::string plain = make_sound(kWav);
  const std::string list = std::string("LIST\x1a\0\0\0INFOISFT\x0e\0\0\0Lavf59.27.100\0", 34);
  std::string tagged = plain;
  tagged.insert(36, list);
  const std::string extensible = make_sound(SF_FORMAT_WAVEX | SF_FORMAT_PCM_24);
  for (const std::string& wav : {plain, tagged, extensible}) {
    const auto whole = read_bytes_as_sound(wav);
    REQUIRE(whole.size() == 16000);
    const auto header_size = static_cast<uint32_t>(wav.find("data"));
    for (const uint32_t size :
         {0u, 0x7FFFF000u, 0x7FFFEFFEu, 0x7FFFFF00u, 0x7FFFFFFFu, 0x80000000u, 0xFFFFFFFFu, 0xFFFFFFD3u}) {
      for (const uint32_t file_size :
           {size + header_size, header_size, 0u, 0xFFFFFFFFu, static_cast<uint32_t>(wav.size() - 8)}) {
        CAPTURE(size);
        CAPTURE(file_size);
        const std::string bytes = with_sizes(wav, file_size, size);
        CHECK(read_bytes_as_sound(bytes) == whole);
        CHECK(piped(bytes, false) == whole);
        CHECK(redirected(bytes) == whole);
      }
    }
  }
}

TEST_CASE("RF64, RIFX and AU recordings without a length are read to their end") {
  const std::string plain = make_sound(kWav);
  const auto whole = read_bytes_as_sound(plain);
  std::string rf64 = with_sizes(plain, 0xFFFFFFFF, 0xFFFFFFFF);
  rf64.replace(0, 4, "RF64");
  CHECK(read_bytes_as_sound(rf64) == whole);
  rf64.insert(12, std::string("ds64\x1c\0\0\0", 8) + std::string(28, '\0'));  // as ffmpeg writes it to a pipe
  CHECK(read_bytes_as_sound(rf64) == whole);
  CHECK(piped(rf64, false) == whole);
  rf64[12 + 8 + 8 + 7] = 1;  // 2^56 bytes of samples
  CHECK(contains(reading_error(rf64), "truncated: the header says 72057594037928"));
  rf64[12 + 8 + 8 + 7] = '\x80';  // a negative size
  CHECK(contains(reading_error(rf64), "the header says more bytes than a file can contain"));
  CHECK(contains(message_of<DataError>([&] { piped(rf64, false); }), "more bytes than a file can contain"));

  std::string rifx = make_sound(kWav | SF_ENDIAN_BIG);
  REQUIRE(rifx.substr(0, 4) == "RIFX");
  set_number(rifx, rifx.find("data") + 4, 0x00F0FF7F);  // 0x7FFFF000
  CHECK(read_bytes_as_sound(rifx) == whole);
  CHECK(piped(rifx, false) == whole);

  std::string au = make_sound(SF_FORMAT_AU | SF_FORMAT_PCM_16);
  for (const uint32_t size : {0u, 0xFFFFFFFFu}) {
    set_number(au, 8, size);
    CHECK(read_bytes_as_sound(au) == whole);
  }
  set_number(au, 8, 0x00000F00);  // 0xF0000
  CHECK(contains(reading_error(au), "sound: truncated: the header says 983064 bytes, found 32024"));
}

TEST_CASE("a WAV with another size than programs write to pipes is truncated if it is shorter") {
  const std::string wav = make_sound(kWav);
  for (const uint32_t size : {32002u, 0x10000000u, 0x7FFD0000u, 0x80030000u, 0xC0000000u, 0xFFFD0000u}) {
    CAPTURE(size);
    const std::string bytes = with_sizes(wav, size + 36, size);
    CHECK(contains(reading_error(bytes),
                   concat_text("truncated: the header says ", uint64_t{size} + 44, " bytes, found 32044")));
    CHECK(contains(message_of<DataError>([&] { redirected(bytes); }), "truncated: the header says"));
    CHECK(contains(message_of<DataError>([&] { piped(bytes, false); }), "found 16000"));
  }
}

TEST_CASE("a WAV of size 0 without samples is an error, also if other chunks follow") {
  const std::string empty = make_sound(kWav).substr(0, 44);
  for (const std::string& more : {std::string(), std::string("LIST\4\0\0\0INFO", 12)}) {
    const std::string bytes = with_sizes(empty + more, static_cast<uint32_t>(36 + more.size()), 0);
    CHECK(contains(reading_error(bytes), "sound: contains no samples"));
  }
}

TEST_CASE("an Ogg file that is cut at any place is truncated") {
  for (const int format : {kVorbis, kOpus}) {
    CAPTURE(format);
    const std::string ogg = make_sound(format);
    CHECK(reading_error(ogg).empty());
    std::set<size_t> cuts;
    const std::vector<size_t> pages = find_pages(ogg);
    REQUIRE(pages.size() > 2);
    for (const size_t page : pages)
      for (const size_t more : {0, 4, 26, 27, 28, 60, 200}) cuts.insert(page + more);
    for (const size_t missing : {1, 2, 100}) cuts.insert(ogg.size() - missing);
    for (const size_t cut : cuts) {
      CAPTURE(cut);
      if (cut > 3 && cut < ogg.size()) CHECK(contains(reading_error(ogg.substr(0, cut)), "sound: truncated"));
    }
  }
}

TEST_CASE("an Ogg file without a last page is an error that names a remedy") {
  std::string ogg = make_sound(kOpus);
  ogg[find_pages(ogg).back() + 5] = 0;
  CHECK(contains(reading_error(ogg),
                 "truncated, or its writer did not mark the last Ogg page; if it is complete, "
                 "\"ffmpeg -i OLD -c copy NEW\" adds the mark"));
}

TEST_CASE("data after an Ogg recording are ignored, and data between its pages are errors") {
  for (const int format : {kVorbis, kOpus}) {
    const std::string ogg = make_sound(format);
    const auto whole = read_bytes_as_sound(ogg);
    CHECK(whole.size() == 16000);
    for (const std::string& more : {std::string("TAG") + std::string(125, 'x'), std::string(5, '\0')})
      CHECK(read_bytes_as_sound(ogg + more) == whole);
    CHECK(
        contains(reading_error(ogg + "Ogg"), "truncated: the last Ogg page has at least 27 bytes, found 3"));
    const size_t page = find_pages(ogg).back();
    CHECK(contains(reading_error(ogg.substr(0, page) + "x" + ogg.substr(page)),
                   concat_text("corrupt: expected an Ogg page at byte ", page)));
  }
}

TEST_CASE("several Ogg streams one after the other are an error, because only the first would be read") {
  for (const int format : {kVorbis, kOpus}) {
    const std::string first = make_sound(format), second = make_sound(format);
    CHECK(contains(reading_error(first + second), "sound: contains several Ogg streams one after the other"));
    CHECK(contains(reading_error(first + first), "sound: contains several Ogg streams"));
  }
}

TEST_CASE("ranges of codings without random access contain the samples of the whole recording") {
  const TempDir dir;
  for (const int format :
       {SF_FORMAT_WAV | SF_FORMAT_GSM610, SF_FORMAT_WAV | SF_FORMAT_G721_32,
        SF_FORMAT_WAV | SF_FORMAT_NMS_ADPCM_16, SF_FORMAT_WAV | SF_FORMAT_NMS_ADPCM_24,
        SF_FORMAT_WAV | SF_FORMAT_NMS_ADPCM_32, SF_FORMAT_WAV | SF_FORMAT_IMA_ADPCM,
        SF_FORMAT_WAV | SF_FORMAT_MS_ADPCM, SF_FORMAT_AU | SF_FORMAT_G721_32,
        SF_FORMAT_AU | SF_FORMAT_G723_24, SF_FORMAT_AU | SF_FORMAT_G723_40, SF_FORMAT_WAV | SF_FORMAT_ULAW,
        SF_FORMAT_NIST | SF_FORMAT_ULAW, SF_FORMAT_FLAC | SF_FORMAT_PCM_16, kVorbis}) {
    CAPTURE(format);
    write_sound(dir / "sound", format, tone(20000, 300, 8000), 8000);
    const auto whole = read_audio(dir / "sound").samples;
    REQUIRE(whole.size() >= 20000);
    for (const int64_t first : {1, 320, 7777, 19000}) {
      const auto part = read_audio(dir / "sound", {.first_sample = first, .end_sample = first + 900}).samples;
      REQUIRE(part.size() == 900);
      CHECK(std::equal(part.begin(), part.end(), whole.begin() + first));
    }
  }
}

TEST_CASE("compressed samples are read from a pipe only if the header has a length") {
  for (const int coding : {SF_FORMAT_GSM610, SF_FORMAT_IMA_ADPCM, SF_FORMAT_G721_32}) {
    CAPTURE(coding);
    const std::string wav = make_sound(SF_FORMAT_WAV | coding, 8000);
    CHECK(piped(wav, false) == read_bytes_as_sound(wav));
    CHECK(
        contains(message_of<DataError>([&] { piped(wav.substr(0, 1500), false); }), "truncated or corrupt"));
    const std::string unknown = with_sizes(wav, 0xFFFFFFFF, 0xFFFFFFFF);
    CHECK(read_bytes_as_sound(unknown).size() >= 8000);
    CHECK(contains(message_of<DataError>([&] { piped(unknown, false); }),
                   "a WAV stream without a length has compressed samples"));
  }
  for (const size_t bytes : {12, 20, 30})
    CHECK(contains(message_of<DataError>([&] { piped(make_sound(kWav).substr(0, bytes), false); }),
                   "ends inside the header of a WAV"));
}

TEST_CASE(
    "the output of a command that writes a WAV to a pipe is a recording, as for Kaldi's speed perturbation") {
  const TempDir dir;
  const std::string wav = make_sound(kWav);
  write_file(dir / "sound.wav", with_sizes(wav, 0x7FFFF024, 0x7FFFF000));
  const CommandOutput copied("cat '" + (dir / "sound.wav").string() + "' | cat");
  CHECK(read_audio(copied.path()).samples == read_bytes_as_sound(wav));
  const CommandOutput has_sox(std::string("command -v sox || true"));
  if (has_sox.text().empty()) {
    MESSAGE("sox is not installed");
    return;
  }
  write_file(dir / "sound.wav", wav);
  const std::string sox = "sox -t wav '" + (dir / "sound.wav").string() + "' ";
  for (const std::string& coding :
       {std::string(), std::string("-b 24 "), std::string("-e u-law "), std::string("-e gsm ")}) {
    CAPTURE(coding);
    const CommandOutput slow(sox + "-t wav " + coding + "- speed 0.9 2>/dev/null | cat");
    const auto samples = static_cast<double>(read_audio(slow.path()).samples.size());
    CHECK(std::abs(samples - 16000 / 0.9) < 321);  // GSM 6.10 has blocks of 320 samples
  }
}
