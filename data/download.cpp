#include "data/download.h"

#include "core/errors.h"

#ifdef TAPEFORMER_CURL
#include <curl/curl.h>

#include <memory>
#endif

namespace tapeformer {

#ifdef TAPEFORMER_CURL

namespace {

struct Sink {
  Bytes bytes;
  size_t max_bytes;
  bool too_long = false;
};

// Called by C code: nothing may be thrown. Taking fewer bytes than offered ends the transfer.
size_t take(const char* data, size_t size, size_t count, void* user) noexcept {
  auto& sink = *static_cast<Sink*>(user);
  sink.too_long = size * count > sink.max_bytes - sink.bytes.size();
  if (sink.too_long) return 0;
  try {
    sink.bytes.insert(sink.bytes.end(), data, data + size * count);
  } catch (...) {
    return 0;
  }
  return size * count;
}

CURLcode transfer(CURL* handle, const std::string& url, Sink& sink) {
  constexpr long kConnectSeconds = 30, kStalledSeconds = 60;
  curl_easy_setopt(handle, CURLOPT_URL, url.c_str());
  curl_easy_setopt(handle, CURLOPT_WRITEFUNCTION, take);
  curl_easy_setopt(handle, CURLOPT_WRITEDATA, &sink);
  curl_easy_setopt(handle, CURLOPT_FOLLOWLOCATION, 1L);
  curl_easy_setopt(handle, CURLOPT_MAXREDIRS, 10L);
  curl_easy_setopt(handle, CURLOPT_FAILONERROR, 1L);
  curl_easy_setopt(handle, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(handle, CURLOPT_CONNECTTIMEOUT, kConnectSeconds);
  curl_easy_setopt(handle, CURLOPT_LOW_SPEED_LIMIT, 1L);
  curl_easy_setopt(handle, CURLOPT_LOW_SPEED_TIME, kStalledSeconds);
  return curl_easy_perform(handle);
}

}  // namespace

bool can_download() {
  return true;
}

std::optional<Bytes> download(const std::string& url, int64_t max_bytes) {
  static const CURLcode started = curl_global_init(CURL_GLOBAL_DEFAULT);
  const std::unique_ptr<CURL, void (*)(CURL*)> handle(curl_easy_init(), curl_easy_cleanup);
  if (started != CURLE_OK || !handle) throw DataError(url + ": cannot start libcurl");
  Sink sink{{}, static_cast<size_t>(max_bytes)};
  const CURLcode status = transfer(handle.get(), url, sink);
  long response = 0;
  curl_easy_getinfo(handle.get(), CURLINFO_RESPONSE_CODE, &response);
  // 403: what object stores answer for names that they do not have.
  if (status == CURLE_HTTP_RETURNED_ERROR && (response == 404 || response == 403)) return std::nullopt;
  if (sink.too_long)
    throw DataError(concat_text(url, ": expected at most ", max_bytes, " bytes, found more"));
  if (status == CURLE_HTTP_RETURNED_ERROR)
    throw DataError(concat_text(url, ": cannot be downloaded: the server answers ", response));
  if (status != CURLE_OK)
    throw DataError(concat_text(url, ": cannot be downloaded: ", curl_easy_strerror(status)));
  return std::move(sink.bytes);
}

#else

bool can_download() {
  return false;
}

std::optional<Bytes> download(const std::string& url, int64_t) {
  throw DataError(url + ": this build cannot download (it was made without libcurl)");
}

#endif

}  // namespace tapeformer
