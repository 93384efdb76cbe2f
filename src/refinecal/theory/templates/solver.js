// Logistic regression in the limit of many rows n and features p, p/n -> r (section 7 of the paper).
// s ~ F are the eigenvalues of the covariance, c the length of the class mean. With g(x) = 1/(1 + e^x), q = g (1 - g):
//
//     kappa = r E[s/(lam + tau s)],    m = eta c^2 E[1/(lam + tau s)]         ( 2 m = <w, w*>_Sigma )
//     v = E[(eta^2 c^2 s + gamma r s^2)/(lam + tau s)^2]                      (   v = |w|^2_Sigma   )
//     t ~ N(m, v),  x = t + kappa g(x),  eta = E[g(x)],  gamma = E[g(x)^2],  tau = E[q/(1 + kappa q)]
//
// The unknowns are u = log(kappa, m, v). All integrals are trapezoidal sums: after the right change of variable
// the integrand is analytic in a wide strip and dies out at both ends, and then the sum is exact to rounding.
"use strict";
const refinecalTheory = (() => {
  const { abs, asinh, cosh, exp, log, log1p, max, min, sinh, sqrt, PI } = Math;
  const LAMS = Array.from({ length: 121 }, (_, i) => 10 ** ((40 - i) / 10)); // 1e4 down to 1e-8
  const TAIL = 9.5; // standard deviations that are integrated over: 2e-21 of the mass is beyond

  // ---- the normal law -------------------------------------------------------------------------------------
  const density = (x) => exp((-x * x) / 2) / sqrt(2 * PI);
  const below = (x) => { // P(N < x) = 1/2 + density(x) (x + x^3/3 + x^5/15 + ...)
    let term = x, sum = x;
    for (let k = 3; abs(term) > 1e-17 * abs(sum); k += 2) sum += term *= (x * x) / k;
    return 0.5 + density(x) * sum;
  };
  const quantile = (e) => { // x >= 0 with P(N < -x) = e: convex there, so that Newton climbs to it from 0
    let x = 0;
    for (let i = 0; i < 50; i++) x += (below(-x) - e) / density(x);
    return x;
  };

  // ---- the spectrum ---------------------------------------------------------------------------------------
  const logGamma = (x) => { // Stirling's series, where it is exact to rounding
    let shift = 0;
    for (; x < 15; x++) shift += log(x);
    const z = 1 / (x * x);
    const series = (1 / 12 - z * (1 / 360 - z * (1 / 1260 - z * (1 / 1680 - z / 1188)))) / x;
    return (x - 0.5) * log(x) - x + log(2 * PI) / 2 + series - shift;
  };
  // Density of Beta(a, b) at u = 1/(1 + e^-y), times u (1 - u) = du/dy.
  const betaOf = (y, a, b, norm = logGamma(a + b) - logGamma(a) - logGamma(b)) =>
    exp(norm - a * log1p(exp(-y)) - b * log1p(exp(y)));
  // E[f(s)] for s = shift + u, u ~ Beta(a, b): every pole of f(s) du/dy is at least pi away from real y.
  const spectrum = (a, b, shift) => {
    const step = 0.25, values = [], weights = [];
    for (let y = -50 / a; y < 50 / b + 8; y += step) {
      const weight = step * betaOf(y, a, b);
      if (weight > 1e-24) values.push(shift + 1 / (1 + exp(-y))), weights.push(weight);
    }
    const total = weights.reduce((sum, w) => sum + w, 0);
    return { values, weights: weights.map((w) => w / total) };
  };

  // ---- the system -----------------------------------------------------------------------------------------
  // (kappa, m, v) from (eta, gamma, tau), with derivatives in these three (rows of `by`) and in lam.
  const linearPart = ({ ratio: r, c2, values, weights }, lam, [eta, gamma, tau]) => {
    let a0 = 0, a1 = 0, b0 = 0, b1 = 0, b2 = 0, d1 = 0, d2 = 0, d3 = 0; // E[s^k/(lam + tau s)^j], j = 1, 2, 3
    for (let i = 0; i < values.length; i++) {
      const s = values[i], one = 1 / (lam + tau * s), two = one * one;
      let w = weights[i];
      a0 += w * one, b0 += w * two;
      a1 += (w *= s) * one, b1 += w * two, d1 += w * two * one;
      b2 += (w *= s) * two, d2 += w * two * one;
      d3 += w * s * two * one;
    }
    const signal = eta * eta * c2, noise = gamma * r;
    return {
      image: [r * a1, eta * c2 * a0, signal * b1 + noise * b2],
      by: [[0, 0, -r * b2], [c2 * a0, 0, -eta * c2 * b1], [2 * eta * c2 * b1, r * b2, -2 * (signal * d2 + noise * d3)]],
      byLam: [-r * b1, -eta * c2 * b0, -2 * (signal * d1 + noise * d2)],
    };
  };

  // (eta, gamma, tau) from (kappa, m, v), with derivatives. Integrals run over x, since t = x - kappa g(x) and
  // dt = (1 + kappa q) dx need no equation to be solved; and x = y + 2 sinh(y)/max(1, kappa), which is even
  // where |x| < log(kappa), the steep part of t, and ever wider beyond it.
  const gaussianPart = ([kappa, m, v]) => {
    const sd = sqrt(v), wide = 2 / max(1, kappa);
    const z = (y, x = y + wide * sinh(y)) => (x - kappa / (1 + exp(x)) - m) / sd;
    const root = (goal) => { // z grows with y
      let low = -60, high = 60;
      while (high - low > 1e-3 * min(1, sd)) {
        const y = (low + high) / 2;
        z(y) < goal ? (low = y) : (high = y);
      }
      return low;
    };
    const first = root(-TAIL), last = root(TAIL), step = min(0.08, (last - first) / 80);
    const sums = new Float64Array(10);
    for (let y = first; y <= last; y += step) {
      const x = y + wide * sinh(y), e = exp(-abs(x)), small = e / (1 + e), g = x > 0 ? small : 1 - small;
      const q = small * (1 - small), at = (x - kappa * g - m) / sd, slope = 1 + kappa * q, sq = g * q;
      const steep = (-q * (1 - 2 * g)) / (slope * slope); // d/dx of q/(1 + kappa q)
      const tilt = at / (2 * sd); // dE[h]/dv = E[h'(t) (t - m)]/(2 v)
      const w = (step * (1 + wide * cosh(y)) * density(at)) / sd;
      sums[0] += w * slope * g, sums[1] += w * slope * g * g, sums[2] += w * q;
      sums[3] += w * sq, sums[4] += w * q * tilt, sums[5] += w * g * sq, sums[6] += w * sq * tilt;
      sums[7] += w * (steep * g - (q * q) / slope), sums[8] += w * steep, sums[9] += w * steep * tilt;
    }
    const [eta, gamma, tau, sq, qt, gsq, sqt, tk, tm, tv] = sums;
    return { constants: [eta, gamma, tau], by: [[-sq, -tau, -qt], [-2 * gsq, -2 * sq, -2 * sqt], [tk, tm, tv]] };
  };

  const cross = (a, b) => [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]];
  const dot = (a, b) => a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
  const column = (rows, j) => rows.map((row) => row[j]);

  // Newton's step for u = log h(u, lam), and du/dlog(lam).
  const newton = (problem, lam, u) => {
    const state = u.map(exp), inner = gaussianPart(state);
    const { image, by, byLam } = linearPart(problem, lam, inner.constants);
    const matrix = by.map((row, i) =>
      state.map((value, j) => (i === j) - (dot(row, column(inner.by, j)) * value) / image[i]));
    const [a, b, c] = [0, 1, 2].map((j) => column(matrix, j));
    const inverse = [cross(b, c), cross(c, a), cross(a, b)], determinant = dot(a, inverse[0]); // Cramer's rule
    const solve = (right) => inverse.map((row) => dot(row, right) / determinant);
    return { step: solve(image.map((h, i) => log(h) - u[i])), slope: solve(byLam.map((d, i) => (d * lam) / image[i])) };
  };

  // The solution at a strength, from one nearby; halfway first if that is too far.
  const follow = (problem, from, lam, depth = 0) => {
    let u = from.u.map((value, i) => value + from.slope[i] * log(lam / from.lam));
    for (let i = 0; i < 10; i++) {
      const { step, slope } = newton(problem, lam, u), size = max(...step.map(abs));
      if (!(size < 5)) break;
      u = u.map((value, j) => value + step[j]);
      if (size < 1e-9) return { lam, u, slope }; // the next step would be of the order of its square
    }
    if (depth > 12) throw new Error(`no convergence at lam = ${lam}`);
    return follow(problem, follow(problem, from, sqrt(lam * from.lam), depth + 1), lam, depth + 1);
  };

  const begin = (problem) => { // so large a strength that all logits are near 0 and g(x) = 1/2
    const mean = problem.values.reduce((sum, s, i) => sum + s * problem.weights[i], 0);
    const lam = max(LAMS[0], 10 * (mean * (1 + problem.ratio) + problem.c2));
    return { lam, u: linearPart(problem, lam, [0.5, 0.25, 0.25]).image.map(log), slope: [-1, -1, -2] };
  };

  // ---- risk = calibration + refinement (Prop. 6.1) --------------------------------------------------------
  // Given u ~ N(a/2, 1) the score is s u and the true log-odds are a u: expertise a = 2 m/sqrt(v), confidence s = sqrt(v).
  const softplus = (x) => max(x, 0) + log1p(exp(-abs(x)));
  const sigmoid = (x) => 1 / (1 + exp(-x));
  const bregman = (x) => (abs(x) < 0.03 // e^x - 1 - x, without cancellation
    ? (x * x / 2) * (1 + (x / 3) * (1 + (x / 4) * (1 + (x / 5) * (1 + (x / 6) * (1 + x / 7)))))
    : Math.expm1(x) - x);
  const apart = (y, z) => (y < z ? -exp(-y) : exp(-z)) * -Math.expm1(-abs(y - z)); // e^-z - e^-y
  const LOSSES = { // entropy and divergence at log-odds y >= 0 (true) and z >= 0 (claimed); slope of the loss in t
    log: {
      entropy: (y) => softplus(-y) + y * sigmoid(-y),
      // KL = p A + (1 - p) B with A = log(p/p'), B = log((1 - p)/(1 - p')), and p (e^-A - 1) + (1 - p)(e^-B - 1) = 0
      divergence: (y, z) => {
        const A = log1p(apart(y, z) * sigmoid(y));
        return sigmoid(y) * bregman(-A) + sigmoid(-y) * bregman(y - z - A);
      },
      slope: (t) => -sigmoid(-t),
    },
    brier: { // of both classes, as in the paper
      entropy: (y) => 2 * sigmoid(y) * sigmoid(-y),
      divergence: (y, z) => 2 * (apart(y, z) * sigmoid(y) * sigmoid(z)) ** 2,
      slope: (t) => -4 * sigmoid(-t) ** 2 * sigmoid(t),
    },
  };
  const decompose = ({ lam, u: [, logM, logV], slope: [, mSlope, vSlope] }, loss) => {
    const { entropy, divergence, slope } = LOSSES[loss];
    const m = exp(logM), s = exp(logV / 2), a = (2 * m) / s, scale = max(1, a, s);
    const step = 1 / 12, last = asinh(scale * (a / 2 + TAIL));
    let refinement = 0, calibration = 0, riskSlope = 0;
    for (let y = 0; y <= last; y += step) { // u = sinh(y)/scale; u and -u together
      const u = sinh(y) / scale, w = (y ? 1 : 0.5) * step * cosh(y) / scale;
      const right = w * density(u - a / 2), left = w * density(u + a / 2);
      const moved = (t) => slope(t) * (m * mSlope + (t - m) * vSlope / 2); // d loss/d log(lam)
      refinement += (right + left) * entropy(a * u);
      calibration += (right + left) * divergence(a * u, s * u);
      riskSlope += right * moved(s * u) + left * moved(-s * u);
    }
    return {
      lam, inner: 2 * m, norm: s, risk: calibration + refinement, calibration, refinement,
      error_rate: below(-a / 2),
      slopes: { risk: riskSlope, refinement: vSlope / 2 - mSlope, calibration: log(a / s) }, // each of its curve's sign
    };
  };

  // ---- curves and minimisers ------------------------------------------------------------------------------
  // Where a curve is smallest: it falls before and grows after, and bisection finds the border.
  const minimise = (points, name, at) => {
    const values = points.map((point) => point[name]), grows = (point) => point.slopes[name] > 0;
    // Rounding may move the lowest value of a flat curve, hence the loops; calibration may be 0 more than once.
    let i = name === "calibration" ? 0 : values.indexOf(min(...values));
    while (i < points.length && grows(points[i])) i++;
    while (i > 0 && !grows(points[i - 1])) i--;
    if (i === 0) return { ...points[0], edge: "largest" };
    if (i === points.length) return { ...points[i - 1], edge: "smallest" };
    let [high, low] = [points[i - 1], points[i]]; // strengths fall along the curve
    while (log(high.lam / low.lam) > 1e-9) {
      const middle = at(low, sqrt(high.lam * low.lam));
      grows(middle) ? (high = middle) : (low = middle);
    }
    return { ...low, edge: "" };
  };

  // The curves over lam, largest first, with the minimisers of risk, calibration and refinement.
  const path = ({ ratio, bayesError, shapeA, shapeB, shift = 1e-3, loss = "log", lams = LAMS }) => {
    const law = spectrum(shapeA, shapeB, shift);
    const inverse = law.values.reduce((sum, s, i) => sum + law.weights[i] / s, 0); // e* = P(N < -c sqrt(E[1/s]))
    const problem = { ...law, ratio, c2: quantile(bayesError) ** 2 / inverse };
    const at = (from, lam) => {
      const found = follow(problem, from, lam);
      return { ...decompose(found, loss), u: found.u, slope: found.slope };
    };
    let last = begin(problem);
    const points = lams.map((lam) => (last = at(last, lam)));
    const minimisers = {};
    for (const name of ["risk", "calibration", "refinement"]) minimisers[name] = minimise(points, name, at);
    const { risk } = minimisers.risk, { refinement } = minimisers.refinement;
    return { points, minimisers, signal: sqrt(problem.c2), gain: 1 - refinement / risk };
  };

  return { path, spectrum, betaOf, below, quantile, LAMS };
})();
