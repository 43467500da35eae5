// write_certificate(): a certificate that has signed itself, and its key on P-256, in one PEM file.
// Threads: one. Memory: the heap. Errors: a check fails.
#pragma once

#include <lumen/base/check.h>

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <cstdio>
#include <filesystem>
#include <memory>

namespace lumen::test {

// Writes it to `path`, whose folder removes it.
inline void write_certificate(const std::filesystem::path& path) {
  const std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)> key(EVP_EC_gen("P-256"), EVP_PKEY_free);
  const std::unique_ptr<X509, decltype(&X509_free)> certificate(X509_new(), X509_free);
  LUMEN_CHECK(key != nullptr && certificate != nullptr);
  ASN1_INTEGER_set(X509_get_serialNumber(certificate.get()), 1);
  X509_gmtime_adj(X509_getm_notBefore(certificate.get()), -60);
  X509_gmtime_adj(X509_getm_notAfter(certificate.get()), 3600);
  X509_set_pubkey(certificate.get(), key.get());
  LUMEN_CHECK(X509_sign(certificate.get(), key.get(), EVP_sha256()) > 0);
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "w"),
                                                             std::fclose);
  LUMEN_CHECK(file != nullptr);
  LUMEN_CHECK(PEM_write_X509(file.get(), certificate.get()) == 1);
  LUMEN_CHECK(PEM_write_PrivateKey(file.get(), key.get(), nullptr, nullptr, 0, nullptr, nullptr) ==
              1);
}

}  // namespace lumen::test
