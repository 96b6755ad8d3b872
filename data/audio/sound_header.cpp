#include "data/audio/sound_header.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <numeric>
#include <set>
#include <string>
#include <string_view>

#include "core/base/errors.h"

namespace tapeformer {
namespace {

constexpr size_t kSphereHeaderBytes = 4096;

// Reads up to `size` bytes at an offset.
Bytes read_part(SoundBytes& source, size_t size, size_t offset) {
  Bytes bytes(size);
  bytes.resize(source.read_at(bytes.data(), size, offset));
  return bytes;
}

int64_t read_number(const Bytes& bytes, size_t offset, size_t size, bool big_endian) {
  uint64_t number = 0;
  for (size_t i = 0; i < size; ++i) number = number << 8 | bytes[offset + (big_endian ? i : size - 1 - i)];
  return static_cast<int64_t>(number);
}

Bytes make_number(uint32_t number, bool big_endian) {
  Bytes bytes(4);
  for (size_t i = 0; i < 4; ++i) bytes[big_endian ? 3 - i : i] = static_cast<uint8_t>(number >> (8 * i));
  return bytes;
}

// Returns whether the size of the samples in a header is a number that programs write to a pipe because they
// do not know the size: 0, or a number near 2 GiB or 4 GiB. For example, sox writes 0x7FFFF000, rounded down
// to whole samples, and ffmpeg writes 0xFFFFFFFF.
bool is_unknown_size(int64_t size) {
  constexpr int64_t kMargin = int64_t{1} << 17;
  const auto is_near = [&](int64_t number) { return std::abs(size - number) <= kMargin; };
  return size == 0 || (size > 0 && (is_near(int64_t{1} << 31) || is_near(int64_t{1} << 32)));
}

// Returns whether a chunk of a WAV file begins at `offset`.
bool has_wav_chunk(SoundBytes& source, int64_t offset, bool big_endian) {
  const Bytes chunk = read_part(source, 8, static_cast<size_t>(offset));
  return chunk.size() == 8 &&
         std::all_of(chunk.begin(), chunk.begin() + 4, [](int c) { return std::isprint(c); }) &&
         offset + 8 + read_number(chunk, 4, 4, big_endian) <= source.size();
}

// Returns the sum, or -1 if a summand is negative or the sum is too large for a file.
int64_t add_sizes(int64_t a, int64_t b) {
  int64_t sum = 0;
  return a < 0 || b < 0 || __builtin_add_overflow(a, b, &sum) ? -1 : sum;
}

SoundHeader read_wav_header(SoundBytes& source, bool big_endian, bool is_rf64) {
  constexpr int kMaxChunks = 1000;
  constexpr int64_t kSizeIsInDs64 = 0xFFFFFFFF;
  SoundHeader header{SoundContainer::wav};
  int64_t size_in_ds64 = 0;
  size_t at = 12;
  for (int i = 0; i < kMaxChunks; ++i) {
    const Bytes chunk = read_part(source, 8, at);  // a name of four characters, and the size of the contents
    if (chunk.size() < 8) break;
    const std::string_view name = view_as_text(chunk, 4);
    int64_t size = read_number(chunk, 4, 4, big_endian);
    at += chunk.size();
    if (name == "data") {
      if (is_rf64 && size == kSizeIsInDs64) size = size_in_ds64;
      const auto start = static_cast<int64_t>(at);
      const bool is_unknown =
          is_unknown_size(size) && !(size == 0 && has_wav_chunk(source, start, big_endian));
      if (is_unknown) {
        // libsndfile reads a WAV up to its end if the header contains the sizes 8 (file) and 0 (samples).
        source.replace(0, {'R', 'I', 'F', big_endian ? uint8_t{'X'} : uint8_t{'F'}});
        source.replace(4, make_number(8, big_endian));
        source.replace(at - 4, make_number(0, big_endian));
      } else {
        header.end = add_sizes(start, size);
      }
      return header;
    }
    const Bytes contents = read_part(source, std::min<size_t>(16, static_cast<size_t>(size)), at);
    if (name == "ds64" && contents.size() == 16) size_in_ds64 = read_number(contents, 8, 8, big_endian);
    if (name == "fmt " && contents.size() == 16) {
      // The numbers of the formats PCM, float, A-law, mu-law and WAVE_FORMAT_EXTENSIBLE.
      const int64_t format = read_number(contents, 0, 2, big_endian);
      header.is_uncompressed_wav =
          format == 1 || format == 3 || format == 6 || format == 7 || format == 0xFFFE;
    }
    at += static_cast<size_t>(size + size % 2);
  }
  if (source.is_pipe()) throw DataError(source.name() + ": ends inside the header of a WAV");
  return header;
}

SoundHeader read_au_header(SoundBytes& source, const Bytes& first, bool big_endian) {
  if (first.size() < 12) return {};
  const int64_t size = read_number(first, 8, 4, big_endian);
  if (!is_unknown_size(size))
    return {SoundContainer::au, add_sizes(read_number(first, 4, 4, big_endian), size)};
  source.replace(8, make_number(0xFFFFFFFF, big_endian));
  return {SoundContainer::au};
}

// Returns the value of a line "name -type value" of a SPHERE header, or "" if there is no such line.
std::string sphere_field(std::string_view header, const std::string& name) {
  size_t at = header.find("\n" + name + " -");
  if (at == std::string_view::npos) return "";
  at = header.find(' ', at + name.size() + 2);
  if (at == std::string_view::npos) return "";
  return std::string(header.substr(at + 1, header.find('\n', at) - at - 1));
}

// Returns a field of a SPHERE header as a number, clamped to the range of int64. Returns 0 if the field is
// absent or not a number.
int64_t parse_sphere_number(std::string_view header, const std::string& name) {
  return std::strtoll(sphere_field(header, name).c_str(), nullptr, 10);
}

SoundHeader read_sphere_header(SoundBytes& source) {
  const Bytes bytes = read_part(source, kSphereHeaderBytes, 0);
  const std::string_view header = view_as_text(bytes, bytes.size());
  if (sphere_field(header, "sample_coding").find("shorten") != std::string::npos)
    throw DataError(
        source.name() +
        ": SPHERE compressed with shorten, which cannot be read; unpack it first (NIST's w_decode "
        "-o pcm, or sph2pipe)");
  const int64_t count = parse_sphere_number(header, "sample_count");
  const int64_t size = parse_sphere_number(header, "sample_n_bytes");
  const int64_t channels = std::max<int64_t>(1, parse_sphere_number(header, "channel_count"));
  const int64_t start =
      std::strtoll(std::string(header.substr(std::min<size_t>(8, header.size()), 8)).c_str(), nullptr, 10);
  if (count == 0) return {SoundContainer::sphere};
  int64_t total = 0;
  const bool is_valid = count > 0 && size >= 0 && !__builtin_mul_overflow(count, size, &total) &&
                        !__builtin_mul_overflow(total, channels, &total);
  return {SoundContainer::sphere, is_valid ? add_sizes(start, total) : -1};
}

// Reads the pages of an Ogg file. Decoders do not report pages that are missing at the end, and libsndfile
// decodes only the first of several streams.
void check_ogg_pages(SoundBytes& source) {
  constexpr size_t kHeaderBytes = 27, kMaxSegments = 255;
  constexpr uint8_t kFirstPage = 2, kLastPage = 4;  // flags of a page
  std::set<int64_t> unfinished;                     // serial numbers of the streams without a last page
  bool has_data = false;
  const auto size = static_cast<size_t>(source.size());
  for (size_t at = 0; at < size;) {
    const Bytes page = read_part(source, kHeaderBytes + kMaxSegments, at);
    const std::string_view magic = view_as_text(page, std::min<size_t>(4, page.size()));
    if (!std::string_view("OggS").starts_with(magic)) {
      if (unfinished.empty()) return;  // other data after the recording
      throw DataError(concat_text(source.name(), ": corrupt: expected an Ogg page at byte ", at));
    }
    size_t end = at + kHeaderBytes;
    if (page.size() >= kHeaderBytes) end += page[kHeaderBytes - 1];
    if (end <= at + page.size())
      end = std::accumulate(page.begin() + kHeaderBytes, page.begin() + static_cast<int64_t>(end - at), end);
    if (end > size)
      throw DataError(concat_text(source.name(), ": truncated: the last Ogg page has at least ", end - at,
                                  " bytes, found ", size - at));
    const uint8_t flags = page[5];
    const int64_t serial = read_number(page, 14, 4, false);
    if (flags & kFirstPage) {
      if (has_data)
        throw DataError(source.name() +
                        ": contains several Ogg streams one after the other, of which only the first can be "
                        "read; convert it, for example to FLAC with ffmpeg");
      unfinished.insert(serial);
    } else {
      has_data = true;
    }
    if (flags & kLastPage) unfinished.erase(serial);
    at = end;
  }
  if (!unfinished.empty())
    throw DataError(
        source.name() +
        ": truncated, or its writer did not mark the last Ogg page; if it is complete, \"ffmpeg -i "
        "OLD -c copy NEW\" adds the mark");
}

// Throws DataError if the samples extend beyond the end of the file.
void check_length(const SoundBytes& source, const SoundHeader& header) {
  if (!header.end || (*header.end >= 0 && *header.end <= source.size())) return;
  throw DataError(
      concat_text(source.name(), ": truncated: the header says ",
                  *header.end < 0 ? "more bytes than a file can contain" : concat_text(*header.end, " bytes"),
                  ", found ", source.size()));
}

SoundHeader read_header(SoundBytes& source) {
  const Bytes first = read_part(source, 12, 0);
  const std::string_view text = view_as_text(first, first.size());
  if (text.starts_with("RIFF")) return read_wav_header(source, false, false);
  if (text.starts_with("RIFX")) return read_wav_header(source, true, false);
  if (text.starts_with("RF64")) return read_wav_header(source, false, true);
  if (text.starts_with(".snd")) return read_au_header(source, first, true);
  if (text.starts_with("dns.")) return read_au_header(source, first, false);
  if (text.starts_with("NIST_1A")) return read_sphere_header(source);
  return {text.starts_with("OggS") ? SoundContainer::ogg : SoundContainer::other};
}

}  // namespace

SoundHeader read_sound_header(SoundBytes& source) {
  if (source.size() == 0) throw DataError(source.name() + ": is empty");
  const SoundHeader header = read_header(source);
  if (header.container == SoundContainer::ogg && !source.is_pipe()) check_ogg_pages(source);
  check_length(source, header);
  return header;
}

}  // namespace tapeformer
