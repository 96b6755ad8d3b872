#include "data/files/download.h"

#include "core/base/errors.h"

#ifdef TAPEFORMER_CURL
#include <curl/curl.h>

#include <chrono>
#include <exception>
#include <memory>

#include "core/system/log.h"
#endif

namespace tapeformer {

#ifdef TAPEFORMER_CURL

namespace {

using Clock = std::chrono::steady_clock;

struct Sink {
  File& file;
  const std::string& url;
  size_t max_bytes;
  size_t bytes = 0;
  Clock::time_point last_report = Clock::now();
  bool too_large = false;
  std::exception_ptr failure = {};
};

// Writes received bytes to the sink. libcurl calls this function from C code, so the function must not throw.
// If the result differs from `size` * `count`, libcurl cancels the transfer.
size_t write_received(const char* data, size_t size, size_t count, void* user) noexcept {
  constexpr std::chrono::seconds kReportInterval{10};
  auto& sink = *static_cast<Sink*>(user);
  sink.too_large = size * count > sink.max_bytes - sink.bytes;
  if (sink.too_large) return 0;
  try {
    sink.file.write(data, size * count);
    sink.bytes += size * count;
    if (Clock::now() - sink.last_report > kReportInterval) {
      sink.last_report = Clock::now();
      log_info(sink.url, ": ", sink.bytes >> 20, " MiB");
    }
  } catch (...) {
    sink.failure = std::current_exception();
    return 0;
  }
  return size * count;
}

std::string url_part(CURLU* parsed, CURLUPart part) {
  char* text = nullptr;
  if (curl_url_get(parsed, part, &text, 0) != CURLUE_OK) return "";
  const std::unique_ptr<char, void (*)(void*)> owned(text, curl_free);
  return owned.get();
}

// Returns true for an http:// URL of the local host and false for an https:// URL. Throws ConfigError for all
// other URLs.
bool is_local(const std::string& url) {
  const std::unique_ptr<CURLU, void (*)(CURLU*)> parsed(curl_url(), curl_url_cleanup);
  if (!parsed || curl_url_set(parsed.get(), CURLUPART_URL, url.c_str(), 0) != CURLUE_OK)
    throw ConfigError(url + ": is not a valid URL");
  const std::string scheme = url_part(parsed.get(), CURLUPART_SCHEME);
  if (scheme == "https") return false;
  const std::string host = url_part(parsed.get(), CURLUPART_HOST);
  if (scheme == "http" && (host == "localhost" || host == "127.0.0.1" || host == "[::1]")) return true;
  throw ConfigError(url + ": unsupported URL, expected https://");
}

CURLcode transfer_url(CURL* handle, const std::string& url, Sink& sink) {
  constexpr long kConnectSeconds = 30, kStalledSeconds = 60;
  const bool local = is_local(url);
#if LIBCURL_VERSION_NUM >= 0x075500
  curl_easy_setopt(handle, CURLOPT_PROTOCOLS_STR, local ? "http" : "https");
  curl_easy_setopt(handle, CURLOPT_REDIR_PROTOCOLS_STR, "https");
#else
  curl_easy_setopt(handle, CURLOPT_PROTOCOLS, long{local ? CURLPROTO_HTTP : CURLPROTO_HTTPS});
  curl_easy_setopt(handle, CURLOPT_REDIR_PROTOCOLS, long{CURLPROTO_HTTPS});
#endif
  if (local) curl_easy_setopt(handle, CURLOPT_PROXY, "");
  curl_easy_setopt(handle, CURLOPT_URL, url.c_str());
  curl_easy_setopt(handle, CURLOPT_WRITEFUNCTION, write_received);
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

bool download(const std::string& url, File& file, int64_t max_bytes) {
  static const CURLcode started = curl_global_init(CURL_GLOBAL_DEFAULT);
  const std::unique_ptr<CURL, void (*)(CURL*)> handle(curl_easy_init(), curl_easy_cleanup);
  if (started != CURLE_OK || !handle) throw DataError(url + ": cannot start libcurl");
  Sink sink{file, url, static_cast<size_t>(max_bytes)};
  const CURLcode status = transfer_url(handle.get(), url, sink);
  if (sink.failure) std::rethrow_exception(sink.failure);
  long response = 0;
  curl_easy_getinfo(handle.get(), CURLINFO_RESPONSE_CODE, &response);
  // Object stores return 403 for files that do not exist.
  if (status == CURLE_HTTP_RETURNED_ERROR && (response == 404 || response == 403)) return false;
  if (sink.too_large)
    throw DataError(concat_text(url, ": expected at most ", max_bytes, " bytes, found more"));
  if (status == CURLE_HTTP_RETURNED_ERROR)
    throw DataError(concat_text(url, ": cannot be downloaded: the server answers ", response));
  if (status == CURLE_UNSUPPORTED_PROTOCOL)
    throw DataError(url + ": cannot be downloaded: the server redirects to an address that is not https");
  if (status != CURLE_OK)
    throw DataError(concat_text(url, ": cannot be downloaded: ", curl_easy_strerror(status)));
  return true;
}

#else

bool can_download() {
  return false;
}

bool download(const std::string& url, File&, int64_t) {
  throw DataError(url + ": this build cannot download (it was built without libcurl)");
}

#endif

}  // namespace tapeformer
