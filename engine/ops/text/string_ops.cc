// Ops that turn strings into numbers. Strings are fed or constant: programs compute none.
//   StringToHashBucketFast, StringToHashBucket, StringToHashBucketStrong(x), attributes num_buckets, key:
//     int64, the hashes of common/string_hash.h, TensorFlow's buckets; of no buckets the hash itself, which
//     crosses chain (engine/import/text_functions.h). Of integers those of their decimal digits, which
//     AsString makes of them (engine/import/op_forms.cc).
//   StringToNumber(x), attribute out_type (float32 by default): an error for what is no number
//   DecodeRaw(x), attributes out_type, little_endian: each string's bytes as numbers along a new last
//     axis; its size must be known before the program runs, from the value of x
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>

#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/kernel_util.h"
#include "engine/ops/common/parse_number.h"
#include "engine/ops/common/shape_rules.h"
#include "engine/ops/common/string_hash.h"
#include "engine/ops/common/strings.h"

namespace braid {
namespace {

constexpr std::int64_t kStringGrain = 1024;

// -------------------------------------------------------------------------------------------------- buckets

void infer_bucket(InferContext& c) {
  require_dtype(c, 0, {DType::String, DType::Int32, DType::Int64});
  const auto buckets = c.node().attrs.require<std::int64_t>("num_buckets");
  if (buckets < 0) c.fail(fmt::format("num_buckets is {}", buckets));
  c.output(DType::Int64, c.shape(0));
}

void infer_strong(InferContext& c) {
  if (c.node().attrs.require<std::vector<std::int64_t>>("key").size() != 2)
    c.fail("key must hold two numbers");
  infer_bucket(c);
}

std::int64_t bucket_of(std::uint64_t hash, std::uint64_t buckets) {
  return static_cast<std::int64_t>(buckets == 0 ? hash : hash % buckets);
}

/// Digits of integers, without memory of their own.
template <class Integer, class Hash>
void hash_integers(const KernelArgs& a, std::int64_t begin, std::int64_t end, std::uint64_t buckets,
                   const Hash& hash) {
  char digits[24];
  for (std::int64_t i = begin; i < end; ++i) {
    const char* stop = std::to_chars(digits, digits + sizeof digits, a.in<Integer>(0)[i]).ptr;
    const std::string_view text(digits, static_cast<std::size_t>(stop - digits));
    a.out<std::int64_t>(0)[i] = bucket_of(hash(text), buckets);
  }
}

template <class Hash>
PreparedKernel bucket_kernel(const PrepareContext& c, Hash hash) {
  const std::int64_t n = c.outputs[0].shape.elements();
  const auto buckets = static_cast<std::uint64_t>(c.attr("num_buckets", std::int64_t{1}));
  const DType dtype = c.inputs[0].dtype;
  return parallel_kernel(c, n, kStringGrain, [=](const KernelArgs& a, std::int64_t begin, std::int64_t end) {
    if (dtype == DType::Int32) return hash_integers<std::int32_t>(a, begin, end, buckets, hash);
    if (dtype == DType::Int64) return hash_integers<std::int64_t>(a, begin, end, buckets, hash);
    const StringsView x(a.inputs[0], n);
    for (std::int64_t i = begin; i < end; ++i) a.out<std::int64_t>(0)[i] = bucket_of(hash(x[i]), buckets);
  });
}

PreparedKernel prepare_strong(const PrepareContext& c) {
  const auto key = c.node.attrs.require<std::vector<std::int64_t>>("key");
  return bucket_kernel(c, [k0 = static_cast<std::uint64_t>(key[0]), k1 = static_cast<std::uint64_t>(key[1])](
                              std::string_view text) { return sip_hash64(text, k0, k1); });
}

// -------------------------------------------------------------------------------------------------- numbers

void infer_number(InferContext& c) {
  require_dtype(c, 0, {DType::String});
  const DType out = c.attr("out_type", DType::Float32);
  if (out != DType::Float32 && out != DType::Float64 && out != DType::Int32 && out != DType::Int64)
    c.fail("out_type must be float32, float64, int32 or int64, got " + std::string(dtype_name(out)));
  c.output(out, c.shape(0));
}

PreparedKernel prepare_number(const PrepareContext& c) {
  const std::int64_t n = c.outputs[0].shape.elements();
  return with_number("StringToNumber", c.outputs[0].dtype, [&]<class T>() {
    return parallel_kernel(
        c, n, kStringGrain,
        [n, place = place_of(c.node)](const KernelArgs& a, std::int64_t begin, std::int64_t end) {
          const StringsView x(a.inputs[0], n);
          for (std::int64_t i = begin; i < end; ++i)
            if (!parse_number(x[i], a.out<T>(0)[i]))
              throw InvalidArgument(
                  fmt::format("{}: element {}, '{}', is no {}", place, i, x[i], dtype_name(dtype_of<T>)));
        });
  });
}

// ------------------------------------------------------------------------------------------------------ raw

void infer_raw(InferContext& c) {
  require_dtype(c, 0, {DType::String});
  const auto out = c.node().attrs.require<DType>("out_type");
  const std::size_t size = dtype_size(out);
  if (size == 0) c.fail("out_type must not be " + std::string(dtype_name(out)));
  if (!c.shape(0).has_rank()) return c.output(out, Shape::unknown_rank());
  std::int64_t length = Shape::kUnknown;
  if (const Tensor* value = c.value(0)) {
    for (std::int64_t i = 0; i < value->elements(); ++i) {
      const auto bytes = static_cast<std::int64_t>(value->string_at(i).size());
      if (length != Shape::kUnknown && bytes != length)
        c.fail(fmt::format("strings must have one length, element {} has {} bytes, those before {}", i, bytes,
                           length));
      length = bytes;
    }
    if (length != Shape::kUnknown && length % static_cast<std::int64_t>(size) != 0)
      c.fail(fmt::format("{} bytes are no multiple of the {} of {}", length, size, dtype_name(out)));
    length = length == Shape::kUnknown ? 0 : length / static_cast<std::int64_t>(size);
  }
  std::vector<std::int64_t> dims(c.shape(0).dims().begin(), c.shape(0).dims().end());
  dims.push_back(length);
  c.output(out, Shape(std::move(dims)));
}

PreparedKernel prepare_raw(const PrepareContext& c) {
  const std::int64_t n = c.inputs[0].shape.elements();
  const auto bytes = static_cast<std::size_t>(c.outputs[0].shape.elements()) * dtype_size(c.outputs[0].dtype);
  const std::size_t size = c.attr("little_endian", true) ? 1 : dtype_size(c.outputs[0].dtype);
  return serial_kernel([n, bytes, size](const KernelArgs& a) {
    if (bytes == 0) return;
    char* out = a.out<char>(0);
    std::memcpy(out, StringsView(a.inputs[0], n)[0].data(), bytes);  // one after the other
    for (std::size_t at = 0; size > 1 && at < bytes; at += size) std::reverse(out + at, out + at + size);
  });
}

}  // namespace

void register_string_ops(OpRegistry& registry) {
  const auto add = [&](const char* name, auto infer, PrepareFn cpu, const OpTraits& traits = computes(),
                       std::vector<int> shape_values = {}) {
    registry.add({.name = name,
                  .traits = traits,
                  .min_inputs = 1,
                  .max_inputs = 1,
                  .infer = infer,
                  .no_gradient_reason = "its input is text",
                  .cpu = std::move(cpu),
                  .shape_values = std::move(shape_values)});
  };
  add("StringToHashBucketFast", infer_bucket,
      [](const PrepareContext& c) { return bucket_kernel(c, farm_fingerprint64); });
  add("StringToHashBucket", infer_bucket, [](const PrepareContext& c) {
    return bucket_kernel(c, [](std::string_view text) { return murmur_hash64(text); });
  });
  add("StringToHashBucketStrong", infer_strong, prepare_strong);
  add("StringToNumber", infer_number, prepare_number, computes().type_attrs({}));
  add("DecodeRaw", infer_raw, prepare_raw, computes(), {0});
}

}  // namespace braid
