#include "gradus/examples/vae/model.h"

namespace gradus::examples {

VAE::VAE(std::int64_t pixels, std::int64_t hidden, std::int64_t latent, Generator& rng)
    : fc_input(pixels, hidden, rng),
      fc_mean(hidden, latent, rng),
      fc_log_variance(hidden, latent, rng),
      fc_latent(latent, hidden, rng),
      fc_output(hidden, pixels, rng) {}

void VAE::visit(Visitor& v) {
    v("fc_input", fc_input);
    v("fc_mean", fc_mean);
    v("fc_log_variance", fc_log_variance);
    v("fc_latent", fc_latent);
    v("fc_output", fc_output);
}

VAE::Posterior VAE::encode(const Tensor& images) const {
    const Tensor h = relu(fc_input(images));  // (B, hidden)
    return {fc_mean(h), fc_log_variance(h)};
}

Tensor VAE::decode(const Tensor& z) const { return fc_output(relu(fc_latent(z))); }

VAE::Output VAE::forward(const Tensor& images, Generator& rng) const {
    const Posterior posterior = encode(images);
    return {decode(draw(posterior, rng)), posterior};
}

Tensor draw(const VAE::Posterior& posterior, Generator& rng) {
    const Tensor& mean = posterior.mean;
    const Tensor noise = normal(mean.shape(), 0, 1, mean.dtype(), mean.device(), &rng);
    return mean + exp(0.5 * posterior.log_variance) * noise;
}

ElboTerms elbo_terms(const VAE::Output& output, const Tensor& images) {
    return {bce_with_logits_loss(output.logits, images, Reduction::sum),
            gaussian_kl(output.posterior.mean, output.posterior.log_variance, Reduction::sum)};
}

}  // namespace gradus::examples
