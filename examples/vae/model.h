// The variational autoencoder: an encoder to a Gaussian, a draw from it, and a decoder to pixels.
#pragma once

#include <cstdint>

#include "gradus/autograd/ops.h"
#include "gradus/core/random.h"
#include "gradus/nn/linear.h"
#include "gradus/nn/module.h"

namespace gradus::examples {

/// One hidden layer on each side: pixels - hidden - latent - hidden - pixels. Pixels lie in [0, 1] and are taken as
/// probabilities. Kingma, Welling: "Auto-Encoding Variational Bayes" (ICLR 2014).
class VAE final : public Layer<VAE> {
  public:
    /// q(z | x) = N(mean, e^log_variance), each coordinate on its own: (B, latent) both.
    struct Posterior {
        Tensor mean, log_variance;
    };
    struct Output {
        Tensor logits;  // (B, pixels): sigmoid gives the pixels
        Posterior posterior;
    };

    VAE(std::int64_t pixels, std::int64_t hidden, std::int64_t latent, Generator& rng);

    Posterior encode(const Tensor& images) const;  // (B, pixels)
    Tensor decode(const Tensor& z) const;          // (B, latent) -> logits (B, pixels)
    /// Encodes, draws z and decodes it.
    Output forward(const Tensor& images, Generator& rng) const;
    void visit(Visitor& v) override;

    std::int64_t latent() const { return fc_mean.weight.size(0); }

    Linear fc_input, fc_mean, fc_log_variance, fc_latent, fc_output;
};

/// z = mean + e^(log_variance / 2) ε with ε from N(0, 1): a draw that gradients pass through.
Tensor draw(const VAE::Posterior& posterior, Generator& rng);

/// The two terms of -ELBO, each summed over the batch: the cross-entropy between pixels and their reconstruction,
/// -Σ x log p + (1 - x) log(1 - p), and KL(q(z | x) || N(0, 1)) = -½ Σ 1 + log σ² - μ² - σ².
struct ElboTerms {
    Tensor reconstruction, kl;  // 0-d, in nats
};
ElboTerms elbo_terms(const VAE::Output& output, const Tensor& images);

}  // namespace gradus::examples
