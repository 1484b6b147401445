const PATHS = {
  brand: "M4 5v14M12 5v14M20 5v14M2.5 9.5h19M2.5 15h19",
  overview: "M4 4h7v7H4zM13 4h7v4h-7zM13 11h7v9h-7zM4 14h7v6H4z",
  jobs: "M5 7h14M5 12h14M5 17h9",
  nodes: "M4 5h16v6H4zM4 13h16v6H4zM7.5 8h.01M7.5 16h.01",
  queues: "M4 6h10M4 12h16M4 18h6",
  services: "M5 12h4l2-6 3 12 2-6h3",
  money:
    "M12 4v16M16 7.5c-1-1-2.3-1.5-4-1.5-2.200 0-4 1-4 3s1.800 2.600 4 3 4 1 4 3-1.800 3-4 3c-1.700 0-3.200-.6-4.200-1.700",
  plan: "M4 19V5M4 19h16M8 15l3.500-4 3 2.500L20 7",
  submit: "M12 5v14M5 12h14",
  out: "M14 5h5v14h-5M4 12h10M10 8l4 4-4 4",
  key: "M14 10a4 4 0 1 0-3 3.900l1.500 1.600H15v2.500h2.500V20H20v-3.500l-6.100-6.100zM9 9h.01",
  theme: "M12 4a8 8 0 1 0 8 8 6 6 0 0 1-8-8z",
};

export type IconName = keyof typeof PATHS;

export function Icon({ name, size = 17 }: { name: IconName; size?: number }) {
  return (
    <svg
      aria-hidden="true"
      width={size}
      height={size}
      viewBox="0 0 24 24"
      fill="none"
      stroke="currentColor"
      strokeWidth="1.8"
      strokeLinecap="round"
      strokeLinejoin="round"
    >
      <path d={PATHS[name]} />
    </svg>
  );
}
