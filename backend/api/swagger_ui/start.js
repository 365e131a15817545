// Swagger UI's own dark colours where the reader's are dark.
const dark = matchMedia("(prefers-color-scheme: dark)");
const paint = () => document.documentElement.classList.toggle("dark-mode", dark.matches);
dark.addEventListener("change", paint);
paint();

// Shows this service's OpenAPI document. Addresses are relative, so that a proxy may serve it all under a prefix.
SwaggerUIBundle({
  url: "openapi.json",
  dom_id: "#swagger-ui",
  deepLinking: true,
  showExtensions: true,
  showCommonExtensions: true,
  validatorUrl: null, // Swagger's own server, which would be told this one's address
});
